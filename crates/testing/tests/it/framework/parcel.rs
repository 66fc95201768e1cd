//! Custom kinds, and an operator for any of them.

use super::world::World;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, PostParams};
use kube::core::NamespaceResourceScope;
use kube::{Api, CustomResource, Resource, ResourceExt};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;
use stead::{Context, Error, Operator, Plan, Typed};
use stead_test::wait;

const GROUP: &str = "stories.stead.dev";
const SOON: Duration = Duration::from_secs(60);

/// A kind of a story of its own, so that stories do not meet.
#[derive(CustomResource, Deserialize, Serialize, Clone, Debug)]
#[kube(
    group = "stories.stead.dev",
    version = "v1",
    kind = "Parcel",
    namespaced,
    schema = "disabled"
)]
pub struct ParcelSpec {
    pub weight: u32,
}

#[derive(CustomResource, Deserialize, Serialize, Clone, Debug)]
#[kube(
    group = "stories.stead.dev",
    version = "v1",
    kind = "Letter",
    namespaced,
    schema = "disabled"
)]
pub struct LetterSpec {
    pub weight: u32,
}

#[derive(CustomResource, Deserialize, Serialize, Clone, Debug)]
#[kube(
    group = "stories.stead.dev",
    version = "v1",
    kind = "Postcard",
    namespaced,
    schema = "disabled"
)]
pub struct PostcardSpec {
    pub weight: u32,
}

/// Something that is posted.
pub trait Post: Typed + Resource<Scope = NamespaceResourceScope> + Serialize + Clone + std::fmt::Debug {
    fn weight(&self) -> u32;
}

impl Post for Parcel {
    fn weight(&self) -> u32 {
        self.spec.weight
    }
}

impl Post for Letter {
    fn weight(&self) -> u32 {
        self.spec.weight
    }
}

impl Post for Postcard {
    fn weight(&self) -> u32 {
        self.spec.weight
    }
}

/// Writes a receipt for everything that is posted, and is asked before it goes.
pub struct Clerk<K> {
    pub posted: PhantomData<fn() -> K>,
}

impl<K: Post> Operator for Clerk<K> {
    type Root = K;
    type Seen = ();
    const FINALIZER: Option<&'static str> = Some("stories.stead.dev/clerk");

    async fn observe(&self, _: &Context, _: &Arc<K>) -> Result<(), Error> {
        Ok(())
    }

    fn plan(&self, root: &K, _: &(), _: Timestamp) -> Plan {
        let mut receipt = ConfigMap::default();
        receipt.metadata.name = Some(root.name_any());
        receipt.data = Some([("weight".to_owned(), root.weight().to_string())].into());
        Plan::new().child(receipt)
    }
}

/// Installs the definition of a kind, and waits until it is served.
pub async fn install<K: Post>(world: &World) {
    let (kind, plural) = (K::kind(&()), K::plural(&()));
    let definition = json!({
        "metadata": {"name": format!("{plural}.{GROUP}")},
        "spec": {
            "group": GROUP, "scope": "Namespaced",
            "names": {"plural": plural, "singular": kind.to_lowercase(), "kind": kind},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                "type": "object",
                "properties": {"spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
            }}}],
        },
    });
    let definition: CustomResourceDefinition = serde_json::from_value(definition).expect("a definition");
    definitions(world)
        .create(&PostParams::default(), &definition)
        .await
        .expect("a definition that is accepted");
    let posted: Api<K> = api(world);
    wait::until("the kind is served", SOON, || async {
        posted.list(&Default::default()).await.map(drop)
    })
    .await
    .expect("a kind that is served");
}

/// Deletes the definition of a kind, and waits until it is gone.
pub async fn uninstall<K: Post>(world: &World) {
    let name = format!("{}.{GROUP}", K::plural(&()));
    let api = definitions(world);
    api.delete(&name, &DeleteParams::default())
        .await
        .expect("a definition that can be deleted");
    wait::until("the definition is gone", SOON, || async {
        match api.get_opt(&name).await {
            Ok(None) => Ok(()),
            other => Err(format!("{:?}", other.map(|found| found.map(|found| found.status)))),
        }
    })
    .await
    .expect("a definition that goes");
}

pub fn api<K: Post>(world: &World) -> Api<K> {
    Api::namespaced(world.client.clone(), &world.namespace)
}

fn definitions(world: &World) -> Api<CustomResourceDefinition> {
    Api::all(world.client.clone())
}
