let latest;

// confirmed shows a dialog, and says whether its button "yes" was pressed. The browser keeps
// the focus in it, closes it with Escape, and gives the focus back.
export function confirmed(dialog) {
  const mine = latest = {};
  return new Promise((resolve) => {
    const closed = () => {
      if (mine === latest && dialog.open) {
        return; // this is about the time before: browsers say late that a dialog was closed
      }
      dialog.removeEventListener("close", closed);
      resolve(mine === latest && dialog.returnValue === "yes");
    };
    dialog.addEventListener("close", closed);
    dialog.returnValue = "";
    dialog.showModal();
  });
}
