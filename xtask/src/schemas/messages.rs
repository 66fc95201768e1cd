//! Puts protobuf declarations and Go tags together into the transcoder's tables.

use super::gotypes::{self, Package};
use super::modules;
use super::protos::{self, Declared, DeclaredField, Label, SCALARS};
use anyhow::{Context, Result, bail};
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use stead_machinery::wire::{Field, Form, Holder, Kind, Message, Messages, Omit};

const MODULES: &[&str] = &[
    "k8s.io/api",
    "k8s.io/apimachinery",
    "k8s.io/apiextensions-apiserver",
    "k8s.io/kube-aggregator",
];

/// Messages whose JSON is not what their fields say.
const SPECIAL: &[(&str, Form)] = &[
    ("k8s.io.apimachinery.pkg.apis.meta.v1.Time", Form::Time),
    ("k8s.io.apimachinery.pkg.apis.meta.v1.MicroTime", Form::MicroTime),
    ("k8s.io.apimachinery.pkg.apis.meta.v1.Duration", Form::Duration),
    ("k8s.io.apimachinery.pkg.apis.meta.v1.FieldsV1", Form::Json),
    ("k8s.io.apimachinery.pkg.api.resource.Quantity", Form::Quantity),
    ("k8s.io.apimachinery.pkg.api.resource.QuantityValue", Form::Quantity),
    ("k8s.io.apimachinery.pkg.util.intstr.IntOrString", Form::IntOrString),
    ("k8s.io.apimachinery.pkg.runtime.RawExtension", Form::Json),
];

/// The same for the types of custom resource definitions, which exist in two versions.
const SPECIAL_IN_DEFINITIONS: &[(&str, Form)] = &[
    ("JSON", Form::Json),
    ("JSONSchemaPropsOrArray", Form::SchemaOrList),
    ("JSONSchemaPropsOrBool", Form::SchemaOrBool),
    ("JSONSchemaPropsOrStringArray", Form::SchemaOrStrings),
];

/// Messages that never appear in an object's JSON.
const UNUSED: &[&str] = &[
    "k8s.io.apimachinery.pkg.runtime.TypeMeta",
    "k8s.io.apimachinery.pkg.runtime.Unknown",
    "k8s.io.apimachinery.pkg.apis.meta.v1.Timestamp",
];

struct Source {
    package: String,
    folder: PathBuf,
    declared: Vec<Declared>,
}

/// Reads every `generated.proto` of the modules and the Go types beside it.
pub fn read() -> Result<Messages> {
    let mut sources = Vec::new();
    for module in MODULES {
        find(&modules::locate(module)?.folder, &mut sources)?;
    }
    sources.sort_by(|a, b| a.package.cmp(&b.package));
    let mut places = HashMap::new();
    for source in &sources {
        for declared in source.declared.iter() {
            places.insert(format!("{}.{}", source.package, declared.name), places.len() as u32);
        }
    }
    let mut result = Messages {
        messages: Vec::new(),
        kinds: BTreeMap::new(),
    };
    let mut packages = HashMap::new();
    for source in &sources {
        packages.insert(source.package.clone(), gotypes::read(&source.folder)?);
    }
    for source in &sources {
        let package = &packages[&source.package];
        let version = source.package.rsplit('.').next().unwrap_or_default();
        for declared in &source.declared {
            let name = format!("{}.{}", source.package, declared.name);
            let untyped = ["List", "WatchEvent"].contains(&declared.name.as_str());
            let is_kind = untyped || package.structs.get(&declared.name).is_some_and(|s| s.is_kind);
            if let (true, Some(group)) = (is_kind, &package.group) {
                let key = (group.clone(), version.to_string(), declared.name.clone());
                result.kinds.insert(key, places[&name]);
            }
            let form = form(&name, declared, &packages, &places).with_context(|| format!("message {name}"))?;
            result.messages.push(Message {
                name: name.into(),
                form,
            });
        }
    }
    Ok(result)
}

fn find(folder: &Path, sources: &mut Vec<Source>) -> Result<()> {
    for entry in std::fs::read_dir(folder).with_context(|| format!("listing {}", folder.display()))? {
        let path = entry?.path();
        let name = path.file_name().and_then(|n| n.to_str()).unwrap_or_default();
        if path.is_dir() && !name.starts_with('.') && !["testdata", "testapigroup", "examples"].contains(&name) {
            find(&path, sources)?;
        } else if name == "generated.proto" {
            let text = std::fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
            let (package, declared) = protos::parse(&text).with_context(|| format!("parsing {}", path.display()))?;
            sources.push(Source {
                package,
                folder: folder.to_path_buf(),
                declared,
            });
        }
    }
    Ok(())
}

fn form(
    name: &str,
    declared: &Declared,
    packages: &HashMap<String, Package>,
    places: &HashMap<String, u32>,
) -> Result<Form> {
    if let Some((_, form)) = SPECIAL.iter().find(|(special, _)| *special == name) {
        return Ok(form.clone());
    }
    if name.contains("apiextensions")
        && let Some((_, form)) = SPECIAL_IN_DEFINITIONS
            .iter()
            .find(|(special, _)| *special == declared.name)
    {
        return Ok(form.clone());
    }
    if UNUSED.contains(&name) {
        return Ok(Form::Struct(Vec::new()));
    }
    let (here, _) = name.rsplit_once('.').context("a name without a package")?;
    let package = &packages[here];
    if package.slices.contains(&declared.name) {
        let [items] = declared.fields.as_slice() else {
            bail!("a named slice with more than one field");
        };
        return Ok(Form::List(kind(&items.value, places)?));
    }
    let tags = match package
        .renamed
        .get(&declared.name)
        .and_then(|target| target.split_once('.'))
    {
        Some((import, target)) => packages
            .get(&imported(here, import))
            .and_then(|p| p.structs.get(target)),
        None => package.structs.get(&declared.name),
    };
    let tags = tags.context("no Go type of this name")?;
    let mut fields = Vec::new();
    for field in &declared.fields {
        fields.push(one(field, tags, places).with_context(|| format!("field {}", field.name))?);
    }
    fields.sort_by_key(|field| field.number);
    Ok(Form::Struct(fields))
}

/// The package behind an import's name, for the few types that are renamed.
fn imported(here: &str, import: &str) -> String {
    match (import, here.rsplit_once('.')) {
        ("metav1", _) | (_, None) => "k8s.io.apimachinery.pkg.apis.meta.v1".to_string(),
        (version, Some((group, _))) => format!("{group}.{version}"),
    }
}

fn one(field: &DeclaredField, tags: &gotypes::Struct, places: &HashMap<String, u32>) -> Result<Field> {
    let tags = tags.fields.get(&field.number).context("no Go field with this number")?;
    if tags.json.is_empty() && !tags.inline {
        bail!("no JSON name");
    }
    Ok(Field {
        number: field.number,
        json: tags.json.as_str().into(),
        kind: kind(&field.value, places)?,
        holder: match field.label {
            Label::Map => Holder::Map,
            Label::Repeated => Holder::Slice,
            Label::Optional if tags.pointer => Holder::Pointer,
            Label::Optional => Holder::Value,
        },
        omit: match (tags.omit_empty, tags.omit_zero) {
            (_, true) => Omit::Zero,
            (true, false) => Omit::Empty,
            (false, false) => Omit::Never,
        },
        inline: tags.inline,
    })
}

fn kind(value: &str, places: &HashMap<String, u32>) -> Result<Kind> {
    Ok(match value {
        "bool" => Kind::Bool,
        "int32" => Kind::Int32,
        "int64" => Kind::Int64,
        "double" => Kind::Double,
        "string" => Kind::String,
        "bytes" => Kind::Bytes,
        message if !SCALARS.contains(&message) => Kind::Message(
            *places
                .get(message)
                .with_context(|| format!("message {message} is nowhere"))?,
        ),
        other => bail!("scalar {other} is new"),
    })
}
