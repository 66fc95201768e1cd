//! OpenAPI: the schemas of every served kind, for `kubectl explain`, `apply` and Helm.
//!
//! Built-in documents are Kubernetes' published ones, put together from embedded pieces without parsing;
//! custom ones are made from their definitions. Version 2 is derived from version 3, since the two say the
//! same thing in different words. [`OpenApi`] keeps the bytes of one catalogue.

mod custom;
mod documents;
mod gnostic;
mod paths;
mod v2;

use crate::catalogue::Catalogue;
use crate::discovery::{Page, hash};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

/// The media type of version 2 as protobuf, as it is asked for and as it is answered.
const V2_PROTOBUF: &str = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";
const V2_PROTOBUF_ANSWER: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";

/// The documents of one catalogue.
#[derive(Debug)]
pub struct OpenApi {
    catalogue: Arc<Catalogue>,
    root: OnceLock<Page>,
    custom: OnceLock<BTreeMap<String, Page>>,
    v2_json: OnceLock<Page>,
    v2_protobuf: OnceLock<Page>,
}

impl OpenApi {
    pub fn new(catalogue: Arc<Catalogue>) -> Self {
        OpenApi {
            catalogue,
            root: OnceLock::new(),
            custom: OnceLock::new(),
            v2_json: OnceLock::new(),
            v2_protobuf: OnceLock::new(),
        }
    }

    /// The answer for `/openapi/v2`, `/openapi/v3` or a document below it; `None` for any other path.
    pub fn page(&self, path: &str, accept: Option<&str>) -> Option<Page> {
        let rest = path.trim_end_matches('/').strip_prefix("/openapi/")?;
        match rest.split_once('/') {
            None if rest == "v2" && accept.is_some_and(prefers_protobuf) => {
                let page = || Page::new(V2_PROTOBUF_ANSWER, v2::protobuf(&self.catalogue));
                Some(self.v2_protobuf.get_or_init(page).clone())
            }
            None if rest == "v2" => {
                let page = || Page::new("application/json", v2::json(&self.catalogue));
                Some(self.v2_json.get_or_init(page).clone())
            }
            None if rest == "v3" => Some(self.root.get_or_init(|| self.make_root()).clone()),
            Some(("v3", document)) => match self.custom().get(document) {
                Some(page) => Some(page.clone()),
                None => documents::page(document),
            },
            _ => None,
        }
    }

    fn custom(&self) -> &BTreeMap<String, Page> {
        self.custom.get_or_init(|| {
            custom::documents(&self.catalogue)
                .into_iter()
                .map(|(path, document)| (path, Page::new("application/json", document.to_string())))
                .collect()
        })
    }

    fn make_root(&self) -> Page {
        let entry = |path: &str, hash: &str| json!({"serverRelativeURL": format!("/openapi/v3/{path}?hash={hash}")});
        let mut paths: BTreeMap<String, Value> = documents::hashes()
            .iter()
            .map(|(path, hash)| (path.clone(), entry(path, hash)))
            .collect();
        for (path, page) in self.custom() {
            paths.insert(path.clone(), entry(path, page.etag.trim_matches('"')));
        }
        Page::new("application/json", json!({"paths": paths}).to_string())
    }
}

fn prefers_protobuf(accept: &str) -> bool {
    let mut types = accept
        .split(',')
        .map(|option| option.split(';').next().unwrap_or_default().trim());
    types.find_map(|kind| match kind {
        V2_PROTOBUF | V2_PROTOBUF_ANSWER => Some(true),
        "application/json" | "*/*" | "application/*" => Some(false),
        _ => None,
    }) == Some(true)
}

#[cfg(test)]
mod tests;
