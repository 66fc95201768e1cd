//! Which kinds the API server serves now, for controllers that work on all of them.

use http::Request;
use serde_json::Value;
use stead::{Error, Kind, Scope};

/// A served kind and what may be done with it.
#[derive(Debug, Clone)]
pub struct Served {
    pub kind: Kind,
    pub verbs: Vec<String>,
}

impl Served {
    /// Whether all these verbs are served.
    pub fn can(&self, verbs: &[&str]) -> bool {
        verbs.iter().all(|verb| self.verbs.iter().any(|have| have == verb))
    }
}

/// Every kind, each in the version that its group prefers.
pub async fn kinds(client: &kube::Client) -> Result<Vec<Served>, Error> {
    Ok(groups(client).await?.iter().flat_map(preferred).collect())
}

/// Every group as discovery tells it, with all its versions and their resources.
pub async fn groups(client: &kube::Client) -> Result<Vec<Value>, Error> {
    let mut found = Vec::new();
    for path in ["/api", "/apis"] {
        let accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
        let request = Request::get(path).header("Accept", accept).body(Vec::new());
        let request = request.map_err(|error| Error::api("discovery", kube::Error::HttpError(error)))?;
        let mut answer: Value = client
            .request(request)
            .await
            .map_err(|error| Error::api("discovery", error))?;
        if let Value::Array(groups) = answer["items"].take() {
            found.extend(groups);
        }
    }
    Ok(found)
}

/// Reads a path of the API; null for what is not there.
pub async fn get(client: &kube::Client, path: &str) -> Result<Value, Error> {
    let fail = |error| Error::api(format!("get {path}"), error);
    let request = Request::get(path).body(Vec::new());
    let request = request.map_err(|error| fail(kube::Error::HttpError(error)))?;
    match client.request::<Value>(request).await {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(Value::Null),
        other => other.map_err(fail),
    }
}

/// The kinds of a group: of its first version, and those that only later ones have.
fn preferred(group: &Value) -> Vec<Served> {
    let name = group["metadata"]["name"].as_str().unwrap_or_default();
    let mut found: Vec<Served> = Vec::new();
    for version in group["versions"].as_array().into_iter().flatten() {
        let version_name = version["version"].as_str().unwrap_or_default();
        for resource in version["resources"].as_array().into_iter().flatten() {
            let plural = resource["resource"].as_str().unwrap_or_default();
            if found.iter().any(|known| known.kind.plural == plural) {
                continue;
            }
            let scope = if resource["scope"] == "Namespaced" {
                Scope::Namespaced
            } else {
                Scope::Cluster
            };
            let verbs = resource["verbs"].as_array().into_iter().flatten();
            found.push(Served {
                kind: Kind {
                    group: name.to_string().into(),
                    version: version_name.to_string().into(),
                    kind: resource["responseKind"]["kind"]
                        .as_str()
                        .unwrap_or_default()
                        .to_string()
                        .into(),
                    plural: plural.to_string().into(),
                    scope,
                },
                verbs: verbs.filter_map(|verb| verb.as_str().map(str::to_string)).collect(),
            });
        }
    }
    found
}
