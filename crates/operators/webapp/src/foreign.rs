//! Kinds of other projects: known by their names only, and used only where the cluster has them.

use kube::Resource;
use kube::core::{NamespaceResourceScope, ObjectMeta};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::fmt::Debug;
use std::marker::PhantomData;

/// A kind that is not built in.
pub trait Named: Clone + Debug + Send + Sync + 'static {
    const GROUP: &'static str;
    const KIND: &'static str;
    const PLURAL: &'static str;
}

/// The Gateway API's HTTPRoute.
#[derive(Clone, Debug)]
pub struct HttpRoute;
/// The Prometheus operator's ServiceMonitor.
#[derive(Clone, Debug)]
pub struct ServiceMonitor;
/// The Prometheus operator's PrometheusRule.
#[derive(Clone, Debug)]
pub struct PrometheusRule;

impl Named for HttpRoute {
    const GROUP: &'static str = "gateway.networking.k8s.io";
    const KIND: &'static str = "HTTPRoute";
    const PLURAL: &'static str = "httproutes";
}

impl Named for ServiceMonitor {
    const GROUP: &'static str = "monitoring.coreos.com";
    const KIND: &'static str = "ServiceMonitor";
    const PLURAL: &'static str = "servicemonitors";
}

impl Named for PrometheusRule {
    const GROUP: &'static str = "monitoring.coreos.com";
    const KIND: &'static str = "PrometheusRule";
    const PLURAL: &'static str = "prometheusrules";
}

/// Whether an API group comes with another project, so that a cluster may do without it.
pub fn is_optional(group: &str) -> bool {
    [
        HttpRoute::GROUP,
        ServiceMonitor::GROUP,
        PrometheusRule::GROUP,
        "metrics.k8s.io",
    ]
    .contains(&group)
}

/// An object of such a kind, whatever is in it.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(bound = "")]
pub struct Foreign<N> {
    #[serde(default)]
    metadata: ObjectMeta,
    #[serde(flatten)]
    rest: Map<String, Value>,
    #[serde(skip)]
    named: PhantomData<fn() -> N>,
}

impl<N: Named> Resource for Foreign<N> {
    type DynamicType = ();
    type Scope = NamespaceResourceScope;

    fn kind(_: &()) -> Cow<'_, str> {
        N::KIND.into()
    }

    fn group(_: &()) -> Cow<'_, str> {
        N::GROUP.into()
    }

    fn version(_: &()) -> Cow<'_, str> {
        "v1".into()
    }

    fn plural(_: &()) -> Cow<'_, str> {
        N::PLURAL.into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}
