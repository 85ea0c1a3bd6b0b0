// What every page runs. Each part looks for its own elements and does nothing without them.
import { watchBusy } from "./api.js";
import { keepTimes } from "./times.js";
import { watchCopies, watchToken } from "./token.js";
import { watchTabs } from "./tabs.js";
import { watchRunAgain } from "./run-again.js";
import { watchExecutions } from "./live.js";
import { watchForms } from "./forms.js";
import { watchSwitch } from "./switch.js";
import { watchSample } from "./sample.js";
import { watchRotate } from "./rotate.js";
import { watchFragments } from "./fragments.js";

watchBusy();
keepTimes();
watchToken();
watchCopies();
watchTabs();
watchRunAgain();
watchExecutions();
watchForms();
watchSwitch();
watchSample();
watchRotate();
watchFragments();
document.documentElement.dataset.ready = "";
