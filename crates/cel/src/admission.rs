//! The names that expressions of admission use: policies, and match conditions of webhooks.
//!
//! Two readers share them: the API server, which evaluates such expressions on what it cannot know the type of
//! before, and whoever checks them against the schemas of the kinds that they are about.

use crate::decl::{Decl, type_of};
use crate::env::Env;
use crate::types::Type;
use std::sync::{Arc, LazyLock};

/// How many variables come before the policy's own: `object`, `oldObject`, `request`, `namespaceObject`, `params`,
/// `authorizer`, `authorizer.requestResource`.
pub const BASE_VARIABLES: usize = 7;

/// Keeps the place of a variable that an expression may not name.
const UNNAMED: &str = "";

/// `request`.
pub static REQUEST: LazyLock<Arc<Decl>> = LazyLock::new(|| {
    let text = Decl::string;
    let kind = || {
        let fields = vec![("group", text()), ("version", text()), ("kind", text())];
        Decl::object("kubernetes.GroupVersionKind", fields)
    };
    let resource = || {
        let fields = vec![("group", text()), ("version", text()), ("resource", text())];
        Decl::object("kubernetes.GroupVersionResource", fields)
    };
    let user = Decl::object(
        "kubernetes.UserInfo",
        vec![
            ("username", text()),
            ("uid", text()),
            ("groups", Decl::list(text())),
            ("extra", Decl::map(Decl::list(text()))),
        ],
    );
    Decl::object(
        "kubernetes.AdmissionRequest",
        vec![
            ("kind", kind()),
            ("resource", resource()),
            ("subResource", text()),
            ("requestKind", kind()),
            ("requestResource", resource()),
            ("requestSubResource", text()),
            ("name", text()),
            ("namespace", text()),
            ("operation", text()),
            ("userInfo", user),
            ("dryRun", Decl::boolean()),
            ("options", Decl::dynamic()),
        ],
    )
});

/// `namespaceObject`.
pub static NAMESPACE: LazyLock<Arc<Decl>> = LazyLock::new(|| {
    let text = Decl::string;
    let condition = Decl::object(
        "kubernetes.NamespaceCondition",
        vec![
            ("status", text()),
            ("type", text()),
            ("lastTransitionTime", Decl::timestamp()),
            ("message", text()),
            ("reason", text()),
        ],
    );
    let status = vec![("conditions", Decl::list(condition)), ("phase", text())];
    let metadata = vec![
        ("name", text()),
        ("generateName", text()),
        ("namespace", text()),
        ("labels", Decl::map(text())),
        ("annotations", Decl::map(text())),
        // Spelled as nothing in an object is, so it is never there.
        ("UID", text()),
        ("creationTimestamp", Decl::timestamp()),
        ("deletionGracePeriodSeconds", Decl::integer()),
        ("deletionTimestamp", Decl::timestamp()),
        ("generation", Decl::integer()),
        ("resourceVersion", text()),
        ("finalizers", Decl::list(text())),
    ];
    let spec = vec![("finalizers", Decl::list(text()))];
    Decl::object(
        "kubernetes.Namespace",
        vec![
            ("metadata", Decl::object("kubernetes.NamespaceMetadata", metadata)),
            ("spec", Decl::object("kubernetes.NamespaceSpec", spec)),
            ("status", Decl::object("kubernetes.NamespaceStatus", status)),
        ],
    )
});

/// What expressions may construct beside what they read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Constructs {
    Nothing,
    /// `Object{...}` and `JSONPatch{...}`.
    Patches,
}

/// What is known of the names before anything is evaluated.
#[derive(Debug, Clone)]
pub struct Names {
    /// The type of `object` and `oldObject`.
    pub object: Type,
    /// The type of `params`; a policy that names no kind of parameters cannot name them either.
    pub params: Option<Type>,
    /// The policy's own variables that were declared before.
    pub variables: Vec<(String, Type)>,
    pub constructs: Constructs,
}

impl Names {
    /// The names where no schema is known.
    pub fn untyped(params: Option<Type>, constructs: Constructs) -> Self {
        Names {
            object: Type::Dyn,
            params,
            variables: Vec::new(),
            constructs,
        }
    }

    /// The names that an expression may use.
    pub fn environment(&self) -> Env {
        let variables = self.variables.iter();
        let fields = variables.map(|(name, kind)| (name.as_str(), declared(kind))).collect();
        let (params, kind) = match &self.params {
            Some(kind) => ("params", kind.clone()),
            None => (UNNAMED, Type::Dyn),
        };
        let env = Env::new()
            .variable("object", self.object.clone())
            .variable("oldObject", self.object.clone())
            .variable("request", type_of(&REQUEST))
            .variable("namespaceObject", type_of(&NAMESPACE))
            .variable(params, kind)
            .variable("authorizer", Type::Opaque("kubernetes.authorization.Authorizer"))
            .variable(
                "authorizer.requestResource",
                Type::Opaque("kubernetes.authorization.ResourceCheck"),
            )
            .variable("variables", type_of(&Decl::object("kubernetes.variables", fields)));
        match self.constructs {
            Constructs::Nothing => env,
            Constructs::Patches => {
                let fields = vec![
                    ("op", Decl::string()),
                    ("path", Decl::string()),
                    ("from", Decl::string()),
                    ("value", Decl::dynamic()),
                ];
                env.constructs(Decl::object("JSONPatch", fields))
                    .constructs_below("Object")
            }
        }
    }
}

/// The declaration of a variable. Of objects nothing is known where they are used.
fn declared(kind: &Type) -> Arc<Decl> {
    match kind {
        Type::Bool => Decl::boolean(),
        Type::String => Decl::string(),
        Type::Int => Decl::integer(),
        Type::Double => Decl::double(),
        Type::Timestamp => Decl::timestamp(),
        Type::List(items) => Decl::list(declared(items)),
        Type::Map(key, values) if matches!(**key, Type::String) => Decl::map(declared(values)),
        _ => Decl::dynamic(),
    }
}
