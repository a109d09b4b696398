// Elements of a page. Texts become text nodes, never markup.

// `properties`: those of the element, or its class.
export function element(name, properties, ...children) {
  const made = document.createElement(name);
  if (typeof properties !== "string") Object.assign(made, properties);
  else if (properties) made.className = properties;
  made.append(...children);
  return made;
}

// Select an option of a list with the keyboard; an index without an option selects none.
export function selectOption(input, list, index) {
  [...list.children].forEach((option, at) => option.setAttribute("aria-selected", String(at === index)));
  const option = list.children[index];
  if (option) input.setAttribute("aria-activedescendant", option.id);
  else input.removeAttribute("aria-activedescendant");
  option?.scrollIntoView({ block: "nearest" });
}
