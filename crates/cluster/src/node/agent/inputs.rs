//! What the agent's loop hears: watch events, answers of tasks, notices of the runtime.
//!
//! Each changes the observation of one pod or node and marks it to be looked at; decisions are made elsewhere.

use super::super::fault::Power;
use super::super::lacks::{self, Word};
use super::{
    Done, Errand, LEASE_RENEWAL, LONGEST_RETRY, Loop, Node, Notice, Pod, Presence, RETRY, Readiness, Running,
    RuntimeError, STATUS_RENEWAL, Sandbox, Stage, Start, State, Timer, What, Work, Written, after, api, plan,
};
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;
use stead::Store;
use stead::cache::Change;

impl Loop {
    pub(super) fn pod_change(&mut self, change: Change<Pod>) {
        match change {
            Change::Listed(pod) | Change::Created(pod) | Change::Updated { new: pod, .. } => self.pod_seen(pod),
            Change::Deleted(pod) => {
                if let Some(uid) = &pod.metadata.uid {
                    self.pod_gone(uid);
                }
            }
        }
    }

    fn pod_seen(&mut self, pod: Arc<Pod>) {
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
        let Some(node) = node.and_then(|name| self.by_name.get(name).copied()) else {
            return;
        };
        let Some(uid) = pod.metadata.uid.clone() else { return };
        if let Some(work) = self.pods.get_mut(&uid) {
            if newer(&work.pod, &pod) {
                work.pod = pod;
            }
            self.dirty.insert(uid);
            return;
        }
        let runtime = self.runtime.clone();
        let work = Work {
            pod: pod.clone(),
            seen: super::Seen::default(),
            presence: Presence::Listed,
            node,
            writing: false,
            write_after: None,
            first_seen: self.clock.now(),
            calls: 0,
            errand: Errand::Nothing,
            lives: 0,
            stage: Stage::Adopting,
        };
        self.pods.insert(uid.clone(), work);
        self.call(Box::pin(async move {
            let seen = runtime.adopt(&pod).await;
            Done::Adopted(uid, seen)
        }));
    }

    fn pod_gone(&mut self, uid: &str) {
        if let Some(work) = self.pods.get_mut(uid) {
            work.presence = Presence::Gone;
            self.dirty.insert(uid.to_owned());
        }
    }

    /// Removes what earlier agents left of pods that are not in the API any more. The list of those that are is
    /// complete.
    pub(super) fn sweep(&mut self, pods: &Store<Pod>) {
        let mut listed = HashSet::new();
        pods.for_each(|_, pod| listed.extend(pod.metadata.uid.clone()));
        // One that this version cannot read is in the API all the same.
        pods.for_each_undecodable(|_, pod| listed.extend(pod.uid.clone()));
        let runtime = self.runtime.clone();
        self.jobs.spawn(async move {
            for uid in runtime.known().await {
                if !listed.contains(&uid)
                    && let Err(error) = runtime.remove(&uid).await
                {
                    tracing::warn!(pod = %uid, %error, "could not remove a pod that is no longer in the API");
                }
            }
            Done::Stopped
        });
    }

    pub(super) fn notice(&mut self, notice: Notice) {
        let Some(work) = self.pods.get_mut(&notice.pod) else {
            return;
        };
        let Some(container) = work.seen.containers.get_mut(&notice.container) else {
            return;
        };
        let (id, since) = match &container.state {
            State::Running { id, since } | State::Stopping { id, since, .. } => (id.clone(), *since),
            // The end of a run that the runtime has not yet told us of: hear it after its start.
            State::Starting => {
                self.early.push(notice);
                return;
            }
            _ => return,
        };
        if id != notice.id {
            return;
        }
        let now = self.clock.now();
        match notice.what {
            What::Exited(mut exit) => {
                exit.started_at = since;
                container.state = State::Exited(exit);
                container.ready = false;
                container.started = false;
            }
            What::Started => container.started = true,
            What::Ready(readiness) => container.ready = readiness == Readiness::Ready,
            What::Unhealthy { grace, message } => {
                let grace = grace.unwrap_or_else(|| super::Shape::of(&work.pod).grace());
                if !matches!(container.state, State::Running { .. }) {
                    return;
                }
                let pod = work.pod.clone();
                self.events.normal(&pod, "Killing", &message, now);
                let action = plan::Action::Stop {
                    container: notice.container,
                    grace,
                    why: plan::Why::Unhealthy,
                };
                self.act(&notice.pod, &pod, action, now);
            }
        }
        self.dirty.insert(notice.pod);
    }

    pub(super) fn done(&mut self, done: Done) {
        let now = self.clock.now();
        match done {
            Done::Adopted(uid, seen) => {
                if let Some(work) = self.pods.get_mut(&uid) {
                    work.seen = seen;
                    work.stage = Stage::Driven;
                    let (node, left) = (work.node, work.seen.sandbox != Sandbox::Absent);
                    if left && self.members[node].power == Power::Off {
                        self.lose(&uid, now);
                    }
                    self.dirty.insert(uid);
                }
            }
            Done::Sandbox(uid, result) => {
                let Some(work) = self.answered(&uid) else { return };
                match result {
                    Ok(addresses) => {
                        work.seen.sandbox = Sandbox::Ready { addresses };
                        let (pod, node) = (work.pod.clone(), work.node);
                        let isolation = &self.members[node].config.isolation;
                        if let Some(Word::Lacking { message, .. }) = lacks::of(&super::Shape::of(&pod), isolation) {
                            self.events.warning(&pod, lacks::EVENT, &message, now);
                        }
                    }
                    Err(error) => {
                        let tries = match work.seen.sandbox {
                            Sandbox::Failed { tries, .. } => tries + 1,
                            _ => 1,
                        };
                        let wait = RETRY.saturating_mul(1 << tries.min(6)).min(LONGEST_RETRY);
                        let message = error.to_string();
                        work.seen.sandbox = Sandbox::Failed {
                            message: message.clone(),
                            retry_at: after(now, wait),
                            tries,
                        };
                        let pod = work.pod.clone();
                        self.events.warning(&pod, error.reason(), &message, now);
                    }
                }
            }
            Done::Started(uid, start, result) => self.started(&uid, start, result, now),
            Done::Stopped => {}
            Done::SandboxStopped(uid, result) => {
                let Some(work) = self.answered(&uid) else { return };
                let addresses = work.seen.sandbox.addresses().to_vec();
                if let Err(error) = result {
                    tracing::warn!(pod = %uid, %error, "could not take a sandbox down");
                }
                work.seen.sandbox = Sandbox::Stopped { addresses };
            }
            Done::Removed(uid) => {
                self.pods.remove(&uid);
            }
            Done::Written(uid, written) => self.written(uid, written, now),
            Done::Registered(index, result) => self.registered(index, *result),
            Done::Renewed(index, result) => {
                if let Err(error) = result {
                    let name = &self.members[index].config.name;
                    tracing::warn!(node = %name, %error, "could not renew the node's lease");
                }
                self.timers.set(Timer::Lease(index), after(now, LEASE_RENEWAL));
            }
        }
    }

    /// The work that a runtime call was for, marked to be looked at.
    fn called(&mut self, uid: &str) -> Option<&mut Work> {
        let work = self.pods.get_mut(uid)?;
        work.calls = work.calls.saturating_sub(1);
        self.dirty.insert(uid.to_owned());
        Some(work)
    }

    /// The work whose sandbox the runtime has answered for, unless its machine died since it was asked.
    fn answered(&mut self, uid: &str) -> Option<&mut Work> {
        let work = self.called(uid)?;
        if std::mem::replace(&mut work.errand, Errand::Nothing) == Errand::InVain {
            self.remove_lost(uid);
            return None;
        }
        self.pods.get_mut(uid)
    }

    fn started(&mut self, uid: &str, start: Start, result: Result<Running, RuntimeError>, now: jiff::Timestamp) {
        let Start {
            container: name,
            restarts,
            lives,
        } = start;
        let Some(work) = self.called(uid) else { return };
        let (pod, in_vain) = (work.pod.clone(), work.lives != lives);
        let container = work.seen.containers.entry(name.clone()).or_default();
        match result {
            Ok(running) if in_vain => {
                container.restarts = restarts;
                container.state = State::Exited(plan::lost(&running.id, running.since, now));
                let runtime = self.runtime.clone();
                self.call(Box::pin(async move {
                    runtime.stop(pod, name, running.id, Duration::ZERO).await;
                    Done::Stopped
                }));
            }
            Ok(running) => {
                container.restarts = restarts;
                container.image_id = running.image_id;
                container.started = running.started;
                container.ready = running.started && running.ready == Readiness::Ready;
                container.state = State::Running {
                    id: running.id,
                    since: running.since,
                };
                self.events
                    .normal(&pod, "Started", &format!("Container {name} started"), now);
            }
            Err(error) => {
                let message = error.to_string();
                let retry_at = if in_vain {
                    now
                } else {
                    container.backoff = container.backoff.raised(now);
                    after(now, Duration::from_secs(u64::from(container.backoff.seconds)))
                };
                container.state = State::Blocked {
                    reason: error.reason().to_owned(),
                    message: message.clone(),
                    since: now,
                    retry_at,
                };
                if !in_vain {
                    self.events.warning(&pod, "Failed", &message, now);
                }
            }
        }
        for early in std::mem::take(&mut self.early) {
            self.notice(early);
        }
    }

    fn written(&mut self, uid: String, written: Written, now: jiff::Timestamp) {
        let Some(work) = self.pods.get_mut(&uid) else { return };
        work.writing = false;
        work.write_after = None;
        match written {
            Written::Stored(mut pod) => {
                pod.metadata.managed_fields = None;
                self.runtime.trim(&mut pod);
                // What the watch told of already is in its cache: a copy of our own would only cost memory.
                let known = work.pod.metadata.resource_version == pod.metadata.resource_version;
                if !known && newer(&work.pod, &pod) {
                    work.pod = Arc::from(pod);
                }
            }
            Written::Gone => work.presence = Presence::Gone,
            Written::Failed(error) => {
                tracing::warn!(pod = %uid, error, "could not write a pod's status; trying again");
                work.write_after = Some(after(now, RETRY));
            }
        }
        self.dirty.insert(uid);
    }

    /// Makes the node known. One that is off or cut from the API cannot: its new object would not ask for the fault any
    /// more, and end it.
    pub(super) fn register(&mut self, index: usize) {
        if self.members[index].power != Power::On {
            return;
        }
        let (member, registrar, now) = (&self.members[index], self.registrar.clone(), self.clock.now());
        let (client, config) = (member.client.clone(), member.config.clone());
        let scheme = self.runtime.scheme();
        self.write(async move {
            let registered = api::register(&client, &registrar, &config, scheme, now).await;
            Done::Registered(index, Box::new(registered))
        });
    }

    pub(super) fn report(&mut self, index: usize) {
        if self.members[index].power != Power::On {
            return;
        }
        let (member, now) = (&self.members[index], self.clock.now());
        let (client, config) = (member.client.clone(), member.config.clone());
        let scheme = self.runtime.scheme();
        self.write(async move { Done::Registered(index, Box::new(api::report(&client, &config, scheme, now).await)) });
    }

    pub(super) fn renew(&mut self, index: usize) {
        let now = self.clock.now();
        let member = &self.members[index];
        let Some(uid) = member.uid.clone().filter(|_| member.power == Power::On) else {
            self.timers.set(Timer::Lease(index), after(now, LEASE_RENEWAL));
            return;
        };
        let (client, config) = (member.client.clone(), member.config.clone());
        self.write_now(async move { Done::Renewed(index, api::renew(&client, &config, &uid, now).await) });
    }

    fn registered(&mut self, index: usize, result: Result<Node, kube::Error>) {
        let now = self.clock.now();
        let total = u32::try_from(self.members.len()).unwrap_or(1);
        let member = &mut self.members[index];
        match result {
            Ok(node) => {
                let first = member.uid.is_none();
                member.uid = node.metadata.uid.clone();
                self.timers.set(Timer::Status(index), after(now, STATUS_RENEWAL));
                if first {
                    self.set_power(index, Power::asked_of(&node));
                    self.renew(index);
                    // Staggered from the second renewal on, or a hundred leases arrive in one burst for ever.
                    let offset = LEASE_RENEWAL.mul_f64(f64::from(u32::try_from(index).unwrap_or(0)) / f64::from(total));
                    self.timers.set(Timer::Lease(index), after(now, offset));
                }
            }
            Err(error) => {
                tracing::warn!(node = member.config.name, %error, "could not register the node; trying again");
                self.timers.set(Timer::Status(index), after(now, RETRY));
                member.uid = None;
            }
        }
    }
}

/// Whether `candidate` is not older than `have`: an answer and a watch event may arrive in either order.
fn newer(have: &Pod, candidate: &Pod) -> bool {
    let number = |pod: &Pod| {
        pod.metadata
            .resource_version
            .as_deref()
            .and_then(|text| text.parse::<u64>().ok())
    };
    match (number(have), number(candidate)) {
        (Some(have), Some(candidate)) => candidate >= have,
        _ => true,
    }
}
