let latest;

// chosen shows a dialog, and says which button was pressed: its value, or "". The browser keeps
// the focus in it, closes it with Escape, and gives the focus back.
export function chosen(dialog) {
  const mine = latest = {};
  return new Promise((resolve) => {
    const closed = () => {
      if (mine === latest && dialog.open) {
        return; // this is about the time before: browsers say late that a dialog was closed
      }
      dialog.removeEventListener("close", closed);
      resolve(mine === latest ? dialog.returnValue : "");
    };
    if (dialog.open) {
      dialog.close(); // without JavaScript, it was shown as a part of the page
    }
    dialog.addEventListener("close", closed);
    dialog.returnValue = "";
    dialog.showModal();
  });
}

// confirmed shows a dialog, and says whether its button "yes" was pressed.
export const confirmed = async (dialog) => await chosen(dialog) === "yes";
