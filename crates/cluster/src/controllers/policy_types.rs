//! Checks the expressions of validating policies against the schemas of the kinds that they are about.
//!
//! The API server accepts expressions that may fit some object; here their author is told of those that cannot fit
//! the kinds that the policy names, such as a misspelt field, before anybody is refused for it.

mod kinds;
mod schemas;

use k8s_openapi::api::admissionregistration::v1::ValidatingAdmissionPolicy;
use serde_json::{Value, json};
use stead::{Context, Controller, Error, Key, Manager, Outcome, Reconciler, Rule, Store};
use stead_cel::admission::{Constructs, Names};
use stead_cel::{Type, compile, shown};

/// Adds the controller of the status of validating policies.
pub fn add_to(manager: &Manager) {
    let policies = manager.cache().store::<ValidatingAdmissionPolicy>();
    let client = manager.client();
    let controller = Controller::new(
        "validatingadmissionpolicy-status-controller",
        Policies { policies, client },
    )
    .for_::<ValidatingAdmissionPolicy>()
    .may(Rule::root::<ValidatingAdmissionPolicy>())
    .without_resync()
    .concurrency(1);
    manager.add(controller);
}

struct Policies {
    policies: Store<ValidatingAdmissionPolicy>,
    client: kube::Client,
}

impl Reconciler for Policies {
    async fn reconcile(&self, context: &Context, key: &Key) -> Result<Outcome, Error> {
        let Some(policy) = self.policies.get(key) else {
            return Ok(Outcome::Settled);
        };
        let generation = policy.metadata.generation.unwrap_or_default();
        let observed = policy.status.as_ref().and_then(|status| status.observed_generation);
        if observed.is_some_and(|observed| generation <= observed) {
            return Ok(Outcome::Settled);
        }
        let seen = serde_json::to_value(&policy.spec).unwrap_or_default();
        let types = self.types(&seen).await?;
        let found = warnings(&seen, &types);
        let checked = match found.is_empty() {
            true => json!({}),
            false => json!({"expressionWarnings": found}),
        };
        let status = json!({"status": {"observedGeneration": generation, "typeChecking": checked}});
        context.writer().patch_status(&*policy, status).await?;
        Ok(Outcome::Settled)
    }
}

/// The types of what a policy sees.
struct Types {
    /// The kinds that it is about, as errors name them.
    objects: Vec<(String, Type)>,
    params: Option<Type>,
}

impl Policies {
    async fn types(&self, spec: &Value) -> Result<Types, Error> {
        let mut schemas = schemas::Published::new(&self.client);
        let mut objects = Vec::new();
        for kind in kinds::about(spec, &kinds::served(&self.client).await?) {
            // A kind without a published schema is not checked.
            if let Some(found) = schemas.type_of(&kind).await? {
                objects.push((kind.to_string(), found));
            }
        }
        let params = match kinds::of_params(spec) {
            Some(kind) => Some(schemas.type_of(&kind).await?.unwrap_or(Type::Dyn)),
            None => None,
        };
        Ok(Types { objects, params })
    }
}

/// What is to be told of each expression of a policy, as its status has it.
fn warnings(spec: &Value, types: &Types) -> Vec<Value> {
    let mut found = Vec::new();
    for (place, validation) in list(&spec["validations"]).enumerate() {
        for field in ["expression", "messageExpression"] {
            let expression = validation[field].as_str().unwrap_or_default();
            if field == "messageExpression" && expression.is_empty() {
                continue;
            }
            let misfits: Vec<String> = types
                .objects
                .iter()
                .filter_map(|(kind, object)| {
                    let why = misfit(spec, expression, object, types.params.as_ref())?;
                    Some(format!("{kind}: {why}\n"))
                })
                .collect();
            if !misfits.is_empty() {
                found.push(json!({
                    "fieldRef": format!("spec.validations[{place}].{field}"), "warning": misfits.join("\n"),
                }));
            }
        }
    }
    found
}

/// Why an expression does not fit objects of this type.
fn misfit(spec: &Value, expression: &str, object: &Type, params: Option<&Type>) -> Option<String> {
    let mut names = Names::of_policy(object.clone(), params.cloned(), Constructs::Nothing);
    for variable in list(&spec["variables"]) {
        let text = |field: &str| variable[field].as_str().unwrap_or_default();
        // What does not fit itself may be anything to those who use it.
        let kind = match compile(text("expression"), &names.environment()) {
            Ok(program) => program.result_type().clone(),
            Err(_) => Type::Dyn,
        };
        names.declare(text("name"), kind);
    }
    let issues = compile(expression, &names.environment()).err()?;
    Some(shown(&issues, expression))
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use schemas::Document;

    fn types() -> Types {
        let document = Document(json!({"components": {"schemas": {
            "io.example.Web": {
                "type": "object",
                "x-kubernetes-group-version-kind": [{"group": "example.io", "version": "v1", "kind": "Web"}],
                "properties": {"spec": {"allOf": [{"$ref": "#/components/schemas/io.example.Spec"}]}},
            },
            "io.example.Spec": {"type": "object", "properties": {
                "replicas": {"type": "integer"},
                "port": {"format": "int-or-string", "oneOf": [{"type": "integer"}, {"type": "string"}]},
                "inner": {"$ref": "#/components/schemas/io.example.Spec"},
            }},
        }}}));
        let kind = kinds::Kind::new("example.io", "v1", "Web");
        Types {
            objects: vec![(kind.to_string(), document.type_of(&kind).unwrap())],
            params: None,
        }
    }

    #[test]
    fn an_author_is_told_which_expressions_cannot_fit() {
        let spec = json!({
            "variables": [{"name": "count", "expression": "object.spec.replicas"}],
            "validations": [
                {"expression": "object.spec.replicas > 1 && object.spec.port == 'http' && has(object.spec.inner)"},
                {"expression": "object.spec.replcas > 1", "messageExpression": "'at ' + variables.count"},
                {"expression": "params.max > 1"},
            ],
        });
        let found = warnings(&spec, &types());
        let told: Vec<_> = found.iter().map(|one| one["fieldRef"].as_str().unwrap()).collect();
        assert_eq!(
            told,
            [
                "spec.validations[1].expression",
                "spec.validations[1].messageExpression",
                "spec.validations[2].expression"
            ]
        );
        assert_eq!(
            found[0]["warning"],
            "example.io/v1, Kind=Web: ERROR: <input>:1:12: undefined field 'replcas'\n | object.spec.replcas > 1\n | ...........^\n"
        );
    }
}
