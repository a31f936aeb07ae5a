/** The page begins here. */

import { render } from "preact";
import * as keys from "./keys";
import * as live from "./live";
import { Link } from "./parts/links";
import { Shell } from "./parts/shell";
import { Empty } from "./parts/states";
import { begin, route } from "./route";
import * as theme from "./theme";
import { CheckpointView } from "./views/checkpoint";
import { ConsoleView } from "./views/console";
import { DiffView } from "./views/diff";
import { RunView } from "./views/run";
import { StoreView } from "./views/store";
import { SubjectView } from "./views/subject";
import { SubjectsView } from "./views/subjects";
import "./style.css";

function View() {
  const at = route.value;
  switch (at.view) {
    case "subjects":
      return <SubjectsView />;
    case "subject":
      return <SubjectView key={at.subject} subject={at.subject} />;
    case "checkpoint":
      return <CheckpointView key={at.id} id={at.id} />;
    case "diff":
      return <DiffView key={`${at.before} ${at.after}`} before={at.before} after={at.after} />;
    case "store":
      return <StoreView />;
    case "run":
      return <RunView />;
    case "console":
      return <ConsoleView key={at.subject} subject={at.subject} />;
    default:
      return (
        <Empty title="There is nothing at this address">
          <Link to={{ view: "subjects" }} class="button">
            All subjects
          </Link>
        </Empty>
      );
  }
}

const place = document.getElementById("app");
if (!place) throw new Error("the document has no place for the page");
theme.begin();
begin();
keys.begin();
live.begin();
render(
  <Shell>
    <View />
  </Shell>,
  place,
);
