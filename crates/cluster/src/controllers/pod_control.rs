//! The pods that a controller makes and deletes for their owner, with a word to people about each.
//!
//! Where one pod is refused, for want of quota or of a right, all others most likely are too: of many, one is tried at
//! first, and more only while all of them come to be.

use super::ownership;
use futures::StreamExt;
use k8s_openapi::api::core::v1::{ObjectReference, Pod};
use stead::{Context, Error, Propagation, Severity, Typed};

/// Writes that are under way at once, for one owner.
const AT_ONCE: usize = 32;
/// So many are made at once without trying one first: the wait for that one costs more than a few refusals.
const FEW: usize = 4;

/// Makes and deletes the pods of one owner.
pub struct PodControl<'a> {
    context: &'a Context,
    owner: ObjectReference,
}

impl<'a> PodControl<'a> {
    pub fn new<K: Typed>(context: &'a Context, owner: &K) -> Self {
        PodControl {
            context,
            owner: ownership::about(owner),
        }
    }

    /// Makes these pods: a few at once, many in batches that double from one, up to the first batch in which one is
    /// refused.
    pub async fn create(&self, pods: &[&Pod]) -> Result<(), Error> {
        let first = if pods.len() <= FEW { FEW } else { 1 };
        let (mut rest, mut batch) = (pods, first);
        while !rest.is_empty() {
            let (now, later) = rest.split_at(batch.min(rest.len()));
            let creates = now.iter().map(|pod| self.create_one(pod));
            all(creates.collect::<Vec<_>>().into_iter()).await?;
            (rest, batch) = (later, batch.saturating_mul(2));
        }
        Ok(())
    }

    async fn create_one(&self, pod: &Pod) -> Result<(), Error> {
        match self.context.writer().create(pod).await {
            Ok(made) => {
                let name = made.json()["metadata"]["name"].as_str().unwrap_or_default();
                self.tell(Severity::Normal, "SuccessfulCreate", &format!("Created pod: {name}"));
                Ok(())
            }
            Err(error) => {
                // In a namespace that goes away nothing can be made, and nobody needs to hear of it.
                if error.reason() != "NamespaceTerminating" {
                    let words = format!("Error creating: {}", error.words());
                    self.tell(Severity::Warning, "FailedCreate", &words);
                }
                Err(error)
            }
        }
    }

    /// Deletes these pods.
    pub async fn delete(&self, pods: impl Iterator<Item = &Pod>) -> Result<(), Error> {
        let deletes = pods.map(|pod| self.delete_one(pod));
        all(deletes.collect::<Vec<_>>().into_iter()).await
    }

    /// Deletes a pod.
    pub async fn delete_one(&self, pod: &Pod) -> Result<(), Error> {
        let deleted = self.context.writer().delete(pod, Propagation::Background).await;
        match &deleted {
            Ok(()) => {
                let name = pod.metadata.name.as_deref().unwrap_or_default();
                self.tell(Severity::Normal, "SuccessfulDelete", &format!("Deleted pod: {name}"));
            }
            // It has changed meanwhile, and is looked at again before anybody could read of it.
            Err(error) if error.is_conflict() => {}
            Err(error) => {
                let words = format!("Error deleting: {}", error.words());
                self.tell(Severity::Warning, "FailedDelete", &words);
            }
        }
        deleted
    }

    fn tell(&self, severity: Severity, reason: &str, note: &str) {
        let action = match reason.ends_with("Create") {
            true => "Creating",
            false => "Deleting",
        };
        let owner = self.owner.clone();
        self.context.events().tell(owner, severity, reason, action, note);
    }
}

/// Runs writes side by side and gives the first error; those that went through are seen in the cache next time.
pub async fn all<T>(writes: impl Iterator<Item = impl Future<Output = Result<T, Error>>>) -> Result<(), Error> {
    let mut results = futures::stream::iter(writes).buffer_unordered(AT_ONCE);
    let mut first = Ok(());
    while let Some(result) = results.next().await {
        first = first.and(result.map(drop));
    }
    first
}
