// Theme and density that the reader chose, before the page is drawn. Not a module: modules run after the whole page.

for (const name of ["theme", "density"]) {
  try {
    const chosen = localStorage.getItem(name);
    if (chosen) document.documentElement.dataset[name] = chosen;
  } catch {
    // Storage may be forbidden.
  }
}
