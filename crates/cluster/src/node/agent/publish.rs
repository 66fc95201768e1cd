//! What the agent tells the API of a pod: its status, and in the end that nothing of it is left.

use super::super::fault::Power;
use super::{Done, Loop, Presence, Question, Shape, Stage, Timer, after, api, status};
use jiff::Timestamp;
use std::time::Duration;

/// How long a pod's first status may wait for its containers, to save the write in between.
const FIRST_STATUS_PATIENCE: Duration = Duration::from_millis(250);

impl Loop {
    /// Writes the pod's status if the API has another, or ends its object.
    pub(super) fn publish(&mut self, uid: &str, release: bool, now: Timestamp) {
        let Some(work) = self.pods.get_mut(uid) else { return };
        let member = &self.members[work.node];
        if work.presence == Presence::Gone {
            if release {
                work.stage = Stage::Released;
                let (runtime, uid) = (self.runtime.clone(), uid.to_owned());
                self.call(Box::pin(async move {
                    if let Err(error) = runtime.remove(&uid).await {
                        tracing::warn!(pod = %uid, %error, "could not remove what a pod left");
                    }
                    Done::Removed(uid)
                }));
            }
            return;
        }
        if work.writing || member.power != Power::On {
            return;
        }
        if let Some(time) = work.write_after.filter(|time| *time > now) {
            self.timers.set(Timer::Pod(uid.to_owned()), time);
            return;
        }
        let pod = work.pod.clone();
        let shape = Shape::of(&pod);
        let question = Question {
            shape,
            seen: &work.seen,
            presence: work.presence,
            now,
        };
        let want = status::of(&question, &member.host);
        let client = member.client.clone();
        if api::differs(pod.status.as_ref(), &want) {
            let patience = after(work.first_seen, FIRST_STATUS_PATIENCE);
            if work.calls > 0 && now < patience && want.phase.as_deref() == Some("Pending") {
                self.timers.set(Timer::Pod(uid.to_owned()), patience);
                return;
            }
            work.writing = true;
            let uid = uid.to_owned();
            self.write(async move { Done::Written(uid, api::write_status(&client, &pod, &want).await) });
        } else if release {
            work.writing = true;
            let uid = uid.to_owned();
            self.write(async move { Done::Written(uid, api::release(&client, &pod).await) });
        }
    }
}
