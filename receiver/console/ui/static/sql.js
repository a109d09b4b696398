// The editor of SQL statements: Ctrl or Cmd with Enter sends the form.

const editor = document.getElementById("q");
editor.addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
  event.preventDefault();
  editor.form.requestSubmit();
});
