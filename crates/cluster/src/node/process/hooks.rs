//! postStart and preStop hooks.
//!
//! A failed postStart ends the container; a failed preStop only leaves an event: the container ends anyway.

use super::Process;
use super::probe::{http_get, port_number};
use crate::clock::after;
use crate::node::shape::Shape;
use k8s_openapi::api::core::v1::{LifecycleHandler, Pod};
use std::net::SocketAddr;
use std::time::Duration;

impl Process {
    pub(super) async fn after_start(&self, pod: &Pod, container: &str) -> Result<(), String> {
        let found = Shape::of(pod).find(container);
        let hook = found
            .as_ref()
            .and_then(|container| container.lifecycle.as_ref()?.post_start.as_ref());
        let Some(hook) = hook else { return Ok(()) };
        let result = self.hook(pod, container, hook).await;
        if let Err(message) = &result {
            self.events.warning(
                pod,
                "FailedPostStartHook",
                &format!("PostStartHook failed: {message}"),
                self.clock.now(),
            );
        }
        result
    }

    pub(super) async fn before_stop(&self, pod: &Pod, container: &str) {
        let found = Shape::of(pod).find(container);
        let hook = found
            .as_ref()
            .and_then(|container| container.lifecycle.as_ref()?.pre_stop.as_ref());
        let Some(hook) = hook else { return };
        if let Err(message) = self.hook(pod, container, hook).await {
            self.events.warning(
                pod,
                "FailedPreStopHook",
                &format!("PreStopHook failed: {message}"),
                self.clock.now(),
            );
        }
    }

    async fn hook(&self, pod: &Pod, container: &str, hook: &LifecycleHandler) -> Result<(), String> {
        let uid = Shape::of(pod).uid();
        if let Some(exec) = &hook.exec {
            let command = exec.command.clone().unwrap_or_default();
            let output = self
                .output(uid, container, &command)
                .await
                .map_err(|error| error.to_string())?;
            return if output.status.success() {
                Ok(())
            } else {
                Err(format!("the command ended with {}", output.status))
            };
        }
        if let Some(http) = &hook.http_get {
            let own = self.address(uid).ok_or("the pod has no address")?;
            let ip = match http.host.as_deref().filter(|host| !host.is_empty()) {
                Some(host) => host.parse().map_err(|_| format!("the host {host} is not an address"))?,
                None => own,
            };
            let address = SocketAddr::new(ip, port_number(pod, container, &http.port)?);
            let status = http_get(self, address, http).await?;
            return if (200..400).contains(&status) {
                Ok(())
            } else {
                Err(format!("status code {status}"))
            };
        }
        if let Some(sleep) = &hook.sleep {
            let time = Duration::from_secs(u64::try_from(sleep.seconds).unwrap_or(0));
            self.clock.sleep_until(after(self.clock.now(), time)).await;
        }
        Ok(())
    }
}
