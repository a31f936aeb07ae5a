/** What a bundle binds. */

import { runner } from "../actions";
import { get, ofCheckpoint } from "../api";
import { useAsked } from "../asking";
import { picture } from "../live";
import type { Members } from "../shapes";
import { CheckpointLink, KindMark, SubjectLink } from "./links";
import { Trouble, Waiting } from "./states";

export function MembersOf({ id }: { id: string }) {
  // What it binds stays; whether a member still has that checkpoint by itself does not.
  const { value, error, again } = useAsked(
    `members ${id}`,
    () => get<Members>(ofCheckpoint(id, "/members")),
    String(picture.value.sequence),
  );
  if (error) return <Trouble error={error} again={again} />;
  if (!value) return <Waiting what="Reading its members" />;
  return (
    <section aria-label="Members">
      <h2>Bound together</h2>
      <ul class="subjects members card">
        {value.members.map((each) => (
          <li key={each.subject}>
            <KindMark kind={each.subject.split("/")[0] ?? ""} />
            <span class="what">
              <SubjectLink subject={each.subject} />
              {runner(each.subject) && <span class="mark live">running</span>}
            </span>
            <span class="soft">
              {each.short ? (
                <CheckpointLink checkpoint={{ id: each.checkpoint, short: each.short }} />
              ) : (
                "kept by the bundle"
              )}
            </span>
          </li>
        ))}
      </ul>
    </section>
  );
}
