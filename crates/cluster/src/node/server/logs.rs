//! Reading container logs: tail, since, limits, timestamps, and following a file that grows.

use super::Parameters;
use crate::node::process::Which;
use crate::node::process::log::{parse, rotated};
use bytes::Bytes;
use futures::Stream;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use std::io;
use std::path::PathBuf;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};

/// How often a followed file is looked at.
const LOOK: Duration = Duration::from_millis(100);
/// The most that is read of a log at once: two rotated files.
const MOST: u64 = 32 << 20;

/// What a client wants of a log.
#[derive(Clone, Debug, PartialEq)]
pub struct Wanted {
    pub which: Which,
    follow: bool,
    timestamps: bool,
    tail: Option<usize>,
    since: Option<Timestamp>,
    limit: Option<usize>,
    stream: Option<&'static str>,
}

impl Wanted {
    pub fn parse(parameters: &Parameters, now: Timestamp) -> Result<Wanted, String> {
        let number = |name: &str| match parameters.text(name) {
            None | Some("") => Ok(None),
            Some(text) => text
                .parse::<u64>()
                .map(Some)
                .map_err(|_| format!("{name}: {text:?} is not a number")),
        };
        let size = |name: &str| number(name).map(|value| value.and_then(|value| usize::try_from(value).ok()));
        let ago = number("sinceSeconds")?.and_then(|seconds| i64::try_from(seconds).ok());
        let since = match (ago, parameters.text("sinceTime")) {
            (Some(seconds), _) => now.checked_sub(SignedDuration::from_secs(seconds)).ok(),
            (None, Some(text)) if !text.is_empty() => {
                Some(text.parse().map_err(|_| format!("sinceTime: {text:?} is not a time"))?)
            }
            _ => None,
        };
        Ok(Wanted {
            which: if parameters.is_on(["previous", "previous"]) {
                Which::Previous
            } else {
                Which::Current
            },
            follow: parameters.is_on(["follow", "follow"]),
            timestamps: parameters.is_on(["timestamps", "timestamps"]),
            tail: size("tailLines")?,
            since,
            limit: size("limitBytes")?,
            stream: match parameters.text("stream") {
                Some("Stdout") => Some("stdout"),
                Some("Stderr") => Some("stderr"),
                _ => None,
            },
        })
    }

    /// The text of a line of the file, if the client wants it.
    fn show(&self, line: &[u8]) -> Option<Vec<u8>> {
        let entry = parse(line)?;
        if self.stream.is_some_and(|stream| stream != entry.stream) {
            return None;
        }
        if let Some(since) = self.since
            && entry.time.parse::<Timestamp>().is_ok_and(|time| time < since)
        {
            return None;
        }
        let mut shown = Vec::with_capacity(line.len());
        if self.timestamps {
            shown.extend_from_slice(entry.time.as_bytes());
            shown.push(b' ');
        }
        shown.extend_from_slice(entry.text);
        if entry.full {
            shown.push(b'\n');
        }
        Some(shown)
    }
}

/// Why a container has no log, in a kubelet's words.
pub fn absent(pod: &Pod, container: &str, which: Which) -> String {
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    let this = format!("container \"{container}\" in pod \"{name}\"");
    if which == Which::Previous {
        return format!("previous terminated {this} not found");
    }
    let lists = pod.status.iter().flat_map(|status| {
        [
            &status.container_statuses,
            &status.init_container_statuses,
            &status.ephemeral_container_statuses,
        ]
    });
    let status = lists.flatten().flatten().find(|status| status.name == container);
    let Some(status) = status else {
        return format!("{this} is not available");
    };
    let waiting = status.state.as_ref().and_then(|state| state.waiting.as_ref());
    match waiting.map(|waiting| waiting.reason.as_deref().unwrap_or_default()) {
        Some("ErrImagePull") => format!("{this} is waiting to start: image can't be pulled"),
        Some("ImagePullBackOff") => format!("{this} is waiting to start: trying and failing to pull image"),
        Some(reason) => format!("{this} is waiting to start: {reason}"),
        None => format!("{this} is waiting to start - no logs yet"),
    }
}

/// Reads a log. With `follow`, goes on until `alive` says that nothing will be added.
pub fn read(
    path: PathBuf,
    wanted: Wanted,
    alive: impl Fn() -> bool + Send + Sync + 'static,
) -> impl Stream<Item = io::Result<Bytes>> + Send + Sync {
    let (sender, receiver) = tokio::sync::mpsc::channel(16);
    let receiver = parking_lot::Mutex::new(receiver);
    tokio::spawn(async move {
        if let Err(error) = copy(&path, &wanted, &alive, &sender).await {
            // The client may be gone, which is how following usually ends.
            let _ = sender.send(Err(error)).await;
        }
    });
    futures::stream::poll_fn(move |context| receiver.lock().poll_recv(context))
}

/// Sends pieces of a log until the limit is reached or the client is gone.
struct Sending<'a> {
    to: &'a tokio::sync::mpsc::Sender<io::Result<Bytes>>,
    left: usize,
}

impl Sending<'_> {
    /// Says whether more is wanted.
    async fn send(&mut self, mut text: Vec<u8>) -> bool {
        text.truncate(self.left);
        self.left -= text.len();
        self.to.send(Ok(Bytes::from(text))).await.is_ok() && self.left > 0
    }
}

async fn copy(
    path: &std::path::Path,
    wanted: &Wanted,
    alive: &(impl Fn() -> bool + Sync),
    to: &tokio::sync::mpsc::Sender<io::Result<Bytes>>,
) -> io::Result<()> {
    let mut sending = Sending {
        to,
        left: wanted.limit.unwrap_or(usize::MAX),
    };
    let mut older = Vec::new();
    if let Ok(file) = tokio::fs::File::open(rotated(path)).await {
        file.take(MOST).read_to_end(&mut older).await?;
    }
    let mut file = BufReader::new(tokio::fs::File::open(path).await?);
    let mut lines: Vec<Vec<u8>> = older
        .split(|byte| *byte == b'\n')
        .filter_map(|line| wanted.show(line))
        .collect();
    let mut line = Vec::new();
    let mut was_alive = alive();
    loop {
        let count = file.read_until(b'\n', &mut line).await?;
        if count == 0 || line.last() != Some(&b'\n') {
            break;
        }
        lines.extend(wanted.show(&line[..line.len() - 1]));
        line.clear();
    }
    let skip = wanted.tail.map_or(0, |tail| lines.len().saturating_sub(tail));
    for shown in lines.into_iter().skip(skip) {
        if !sending.send(shown).await {
            return Ok(());
        }
    }
    if !wanted.follow {
        return Ok(());
    }
    loop {
        if file.read_until(b'\n', &mut line).await? == 0 || line.last() != Some(&b'\n') {
            // What was written between the last look and the end is read once more before giving up.
            if !was_alive {
                return Ok(());
            }
            was_alive = alive();
            tokio::select! {
                () = tokio::time::sleep(LOOK) => {}
                () = to.closed() => return Ok(()),
            }
            continue;
        }
        if let Some(shown) = wanted.show(&line[..line.len() - 1])
            && !sending.send(shown).await
        {
            return Ok(());
        }
        line.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_container_that_never_ran_says_what_it_waits_for() {
        let pod = |reason: &str| -> Pod {
            serde_json::from_value(serde_json::json!({
                "metadata": {"name": "p"},
                "status": {"containerStatuses": [{
                    "name": "a", "image": "i", "imageID": "", "ready": false, "restartCount": 0,
                    "state": {"waiting": {"reason": reason}},
                }]},
            }))
            .unwrap()
        };
        let said = |reason: &str| absent(&pod(reason), "a", Which::Current);
        let start = "container \"a\" in pod \"p\" is waiting to start";
        assert_eq!(said("ContainerCreating"), format!("{start}: ContainerCreating"));
        assert_eq!(said("ErrImagePull"), format!("{start}: image can't be pulled"));
        assert_eq!(
            said("ImagePullBackOff"),
            format!("{start}: trying and failing to pull image")
        );
        assert_eq!(
            absent(&pod("x"), "a", Which::Previous),
            "previous terminated container \"a\" in pod \"p\" not found"
        );
        assert_eq!(
            absent(&pod("x"), "b", Which::Current),
            "container \"b\" in pod \"p\" is not available"
        );
    }
}
