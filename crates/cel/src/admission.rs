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
    /// The policy's own variables that were declared before; webhooks have none.
    pub variables: Option<Vec<(String, Type)>>,
    pub constructs: Constructs,
}

impl Names {
    /// The names of a policy's expressions.
    pub fn of_policy(object: Type, params: Option<Type>, constructs: Constructs) -> Self {
        Names {
            object,
            params,
            variables: Some(Vec::new()),
            constructs,
        }
    }

    /// The names of a webhook's match conditions.
    pub fn of_webhook() -> Self {
        Names {
            object: Type::Dyn,
            params: None,
            variables: None,
            constructs: Constructs::Nothing,
        }
    }

    /// Adds a variable for the expressions after it.
    pub fn declare(&mut self, name: &str, kind: Type) {
        self.variables.get_or_insert_default().push((name.to_string(), kind));
    }

    /// The names that an expression may use.
    pub fn environment(&self) -> Env {
        let (params, kind) = match &self.params {
            Some(kind) => ("params", kind.clone()),
            None => (UNNAMED, Type::Dyn),
        };
        let (variables, fields) = match &self.variables {
            Some(variables) => ("variables", variables.as_slice()),
            None => (UNNAMED, [].as_slice()),
        };
        let fields = fields
            .iter()
            .map(|(name, kind)| (name.as_str(), Decl::typed(known(kind))))
            .collect();
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
            .variable(variables, type_of(&Decl::object("kubernetes.variables", fields)));
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

/// What is known of a variable where it is used: of objects nothing, and nothing of types that only functions know.
fn known(kind: &Type) -> Type {
    match kind {
        Type::List(items) => Type::list(known(items)),
        Type::Map(key, values) => Type::map(known(key), known(values)),
        Type::Object(_) | Type::Opaque(_) | Type::Optional(_) | Type::Type(_) | Type::Param(_) | Type::Error => {
            Type::Dyn
        }
        scalar => scalar.clone(),
    }
}
