// Parts of the page as the server makes them now.
import { showTimes } from "./times.js";

// refreshParts puts the current state of elements, by their IDs, in their place.
export async function refreshParts(...ids) {
  const response = await fetch(location.href);
  if (!response.ok) {
    return; // what is shown is old, and the next page load says why
  }
  const fresh = new DOMParser().parseFromString(await response.text(), "text/html");
  for (const id of ids) {
    const [before, after] = [document.getElementById(id), fresh.getElementById(id)];
    if (before && after) {
      before.replaceWith(document.adoptNode(after));
      showTimes(document.getElementById(id));
    }
  }
}
