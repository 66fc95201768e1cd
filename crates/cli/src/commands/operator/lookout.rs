//! Says what keeps the operators from working, and what to run, for as long as something does.
//!
//! It only reads: standbys look too, and nobody but the leader writes.

use crate::terminal::{Line, tell};
use http::Request;
use kube::Client;
use serde_json::Value;
use std::time::Duration;
use stead::{Namespaces, Rule};
use stead_webapp::foreign::is_optional;
use tokio_util::sync::CancellationToken;

const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

pub struct Lookout {
    pub client: Client,
    pub server: String,
    /// What the controllers need.
    pub rules: Vec<Rule>,
    pub namespaces: Namespaces,
    /// Where the Lease is, if a leader is elected.
    pub election: Option<String>,
}

/// What is missing, and what to do about it.
#[derive(Debug, PartialEq, Eq)]
struct Missing {
    what: String,
    hint: String,
}

impl Lookout {
    /// Looks until all is well. The same thing is said once only.
    pub async fn run(self, stop: CancellationToken) {
        let mut said = None;
        let mut pause = FIRST_PAUSE;
        loop {
            let missing = self.look().await;
            match (&missing, &said) {
                (None, None) => return,
                (None, Some(_)) => {
                    tell(Line::Note, "everything that was missing is there now");
                    return;
                }
                (Some(missing), _) => {
                    if said.as_ref() != Some(missing) {
                        tell(Line::Error, &format!("{}; trying again", missing.what));
                        tell(Line::Hint, &missing.hint);
                    }
                }
            }
            said = missing;
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(pause) => {}
            }
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    async fn look(&self) -> Option<Missing> {
        for (rule, resource) in self.listed() {
            let path = self.path(rule, resource);
            if let Err(error) = self.get(&format!("{path}?limit=1")).await {
                return Some(self.explain(&error, "list", resource, &rule.group));
            }
        }
        let namespace = self.election.as_ref()?;
        let lease = format!(
            "/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{}",
            super::NAME
        );
        match self.get(&lease).await {
            Ok(()) => None,
            // Whoever wins the election makes it.
            Err(kube::Error::Api(status)) if status.code == 404 => None,
            Err(error) => Some(self.explain(&error, "get", "leases", "coordination.k8s.io")),
        }
    }

    /// Every resource that is watched.
    fn listed(&self) -> impl Iterator<Item = (&Rule, &str)> {
        // What comes with other projects need not be there.
        let rules = self
            .rules
            .iter()
            .filter(|rule| rule.verbs.contains("list") && !is_optional(&rule.group));
        rules.flat_map(|rule| rule.resources.iter().map(move |resource| (rule, resource.as_str())))
    }

    fn path(&self, rule: &Rule, resource: &str) -> String {
        let root = match rule.group.as_str() {
            "" => "/api/v1".to_owned(),
            "autoscaling" => "/apis/autoscaling/v2".to_owned(),
            group => format!("/apis/{group}/v1"),
        };
        match &self.namespaces {
            Namespaces::Only(names) if !names.is_empty() => format!("{root}/namespaces/{}/{resource}", names[0]),
            _ => format!("{root}/{resource}"),
        }
    }

    async fn get(&self, path: &str) -> Result<(), kube::Error> {
        let request = Request::get(path).body(Vec::new()).map_err(kube::Error::HttpError)?;
        self.client.request::<Value>(request).await.map(|_| ())
    }

    fn explain(&self, error: &kube::Error, verb: &str, resource: &str, group: &str) -> Missing {
        let of = if group.is_empty() {
            resource.to_owned()
        } else {
            format!("{resource}.{group}")
        };
        let scope = match &self.namespaces {
            Namespaces::Only(names) => format!(" --namespaces {}", names.join(",")),
            Namespaces::All => String::new(),
        };
        match error {
            kube::Error::Api(status) if status.code == 404 => Missing {
                what: format!("the cluster does not know {of}: its CustomResourceDefinition is not installed"),
                hint: "run `stead manifests --only crds | kubectl apply -f -`".to_owned(),
            },
            kube::Error::Api(status) if status.code == 403 || status.code == 401 => Missing {
                what: format!("no permission to {verb} {of}: {}", status.message),
                hint: format!(
                    "run `stead manifests --only rbac{scope} | kubectl apply -f -` as an administrator, and run the operator with that account"
                ),
            },
            kube::Error::Api(status) => Missing {
                what: format!("the API server cannot {verb} {of}: {}", status.message),
                hint: "look at the API server's own log".to_owned(),
            },
            _ => Missing {
                what: format!("no API server answers at {}", self.server),
                hint: "start it, or set KUBECONFIG to another cluster; `stead up` starts one".to_owned(),
            },
        }
    }
}
