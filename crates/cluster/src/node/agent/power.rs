//! Machines that are switched off and on, and what becomes of their pods.

use super::super::fault::Power;
use super::{Done, Errand, Loop, Node, Stage, State, plan};
use stead::cache::Change;

impl Loop {
    pub(super) fn node_change(&mut self, change: Change<Node>) {
        match change {
            Change::Listed(node) | Change::Created(node) | Change::Updated { new: node, .. } => {
                let name = node.metadata.name.as_deref().unwrap_or_default();
                let Some(index) = self.by_name.get(name).copied() else {
                    return;
                };
                // One that is off or cut off and whose Node is gone stays so: a new Node of its name is another agent's.
                let member = &self.members[index];
                let another = member.uid.is_some() && member.uid != node.metadata.uid;
                if another && member.power != Power::On {
                    return;
                }
                self.set_power(index, Power::asked_of(&node));
            }
            Change::Deleted(node) => {
                // A node whose object was deleted registers again, if its machine runs and reaches the API.
                let name = node.metadata.name.as_deref().unwrap_or_default();
                if let Some(index) = self.by_name.get(name).copied() {
                    self.register(index);
                }
            }
        }
    }

    pub(super) fn set_power(&mut self, index: usize, power: Power) {
        let member = &mut self.members[index];
        let before = std::mem::replace(&mut member.power, power);
        if before == power {
            return;
        }
        tracing::info!(node = member.config.name, ?power, "the node's power changed");
        self.runtime.set_power(&member.config.name, power);
        let now = self.clock.now();
        let uids: Vec<String> = self
            .pods
            .iter()
            .filter(|(_, work)| work.node == index)
            .map(|(uid, _)| uid.clone())
            .collect();
        for uid in uids {
            if power == Power::Off {
                self.lose(&uid, now);
            }
            self.dirty.insert(uid);
        }
        if power == Power::On {
            self.report(index);
            self.renew(index);
        }
    }

    /// The machine died: whatever ran does not run any more, and nobody saw how it ended.
    pub(super) fn lose(&mut self, uid: &str, now: jiff::Timestamp) {
        let Some(work) = self.pods.get_mut(uid) else { return };
        // What there is of it is not known yet: it is lost when that is.
        if work.stage == Stage::Adopting {
            return;
        }
        work.lives += 1;
        for container in work.seen.containers.values_mut() {
            if let State::Running { id, since } | State::Stopping { id, since, .. } = &container.state {
                container.state = State::Exited(plan::lost(id, *since, now));
                container.ready = false;
                container.started = false;
            }
        }
        // Not stopped: a node that comes back at once would make a sandbox while the old one is being removed.
        work.seen.sandbox = work.seen.sandbox.stopping();
        match work.errand {
            Errand::Nothing => self.remove_lost(uid),
            Errand::UnderWay | Errand::InVain => work.errand = Errand::InVain,
        }
    }

    /// Removes what a machine that died had of a pod.
    pub(super) fn remove_lost(&mut self, uid: &str) {
        let Some(work) = self.pods.get_mut(uid) else { return };
        work.errand = Errand::UnderWay;
        work.calls += 1;
        let (runtime, uid) = (self.runtime.clone(), uid.to_owned());
        self.call(Box::pin(async move {
            let removed = runtime.remove(&uid).await;
            Done::SandboxStopped(uid, removed)
        }));
    }
}
