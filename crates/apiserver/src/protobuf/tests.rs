use super::*;
use proptest::prelude::*;
use serde_json::json;
use std::path::{Path, PathBuf};

/// Which ways are compared: a pointer to a zero time is null in JSON and cannot come back.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ways {
    Both,
    ToJson,
}

/// Compares every `.pb` of a folder with the `.json` beside it.
fn compare(folder: &Path, ways: Ways) -> (usize, Vec<String>) {
    let mut compared = 0;
    let mut wrong = Vec::new();
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder)
        .expect("the folder is there")
        .map(|entry| entry.expect("it can be listed").path())
        .filter(|path| path.extension().is_some_and(|e| e == "pb"))
        .collect();
    files.sort();
    for path in files {
        compared += 1;
        let name = path.file_stem().expect("a name").to_string_lossy().into_owned();
        let body = std::fs::read(&path).expect("readable");
        let text = std::fs::read(path.with_extension("json")).expect("readable");
        let expected: Value = serde_json::from_slice(&text).expect("JSON");
        // The one message that is no object of its own: watches frame others with it.
        if name.ends_with(".WatchEvent") {
            let mut value = decode_as(&body, "v1", "WatchEvent").expect("decodes");
            value
                .as_object_mut()
                .expect("an object")
                .retain(|key, _| key != "apiVersion" && key != "kind");
            assert_eq!(value, expected);
            continue;
        }
        match decode(&body) {
            Ok(value) if value == expected => {}
            Ok(value) => wrong.push(format!("{name}: {}", difference("", &value, &expected))),
            Err(error) => wrong.push(format!("{name}: {error}")),
        }
        if ways == Ways::ToJson {
            continue;
        }
        match encode(&expected) {
            Some(Ok(bytes)) if bytes == body => {}
            Some(Ok(bytes)) => match decode(&bytes) {
                Ok(value) if value == expected => {}
                other => wrong.push(format!("{name}: encoded otherwise: {other:?}")),
            },
            other => wrong.push(format!("{name}: {other:?}")),
        }
    }
    (compared, wrong)
}

fn difference(path: &str, ours: &Value, theirs: &Value) -> String {
    match (ours, theirs) {
        (Value::Object(a), Value::Object(b)) => {
            let keys: std::collections::BTreeSet<_> = a.keys().chain(b.keys()).collect();
            keys.into_iter()
                .filter(|key| a.get(*key) != b.get(*key))
                .map(|key| difference(&format!("{path}.{key}"), &ours[key], &theirs[key]))
                .collect::<Vec<_>>()
                .join("; ")
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => a
            .iter()
            .zip(b)
            .enumerate()
            .filter(|(_, (a, b))| a != b)
            .map(|(at, (a, b))| difference(&format!("{path}[{at}]"), a, b))
            .collect::<Vec<_>>()
            .join("; "),
        _ => format!("{path}: {ours} instead of {theirs}"),
    }
}

#[test]
fn the_kept_sample_of_kubernetes_own_test_data_reads_as_its_json() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/protobuf");
    let (compared, wrong) = compare(&folder, Ways::Both);
    assert!(compared >= 10, "only {compared} files");
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn every_kind_of_kubernetes_test_data_reads_as_its_json() {
    let Some(folder) = published() else {
        return;
    };
    let (compared, wrong) = compare(&folder, Ways::Both);
    assert!(compared >= 180, "only {compared} files");
    assert!(wrong.is_empty(), "{} of {compared} differ: {wrong:#?}", wrong.len());
}

/// Another folder of such pairs can be compared too: objects of other modules, zero objects, a newer release.
#[test]
fn the_pairs_of_a_given_folder_read_as_their_json() {
    let Some(folder) = std::env::var_os("STEAD_PROTOBUF_PAIRS") else {
        skip("skipped: STEAD_PROTOBUF_PAIRS names no folder of .pb and .json pairs");
        return;
    };
    let (compared, wrong) = compare(Path::new(&folder), Ways::ToJson);
    assert!(wrong.is_empty(), "{} of {compared} differ: {wrong:#?}", wrong.len());
}

/// The test data of `k8s.io/api`, where Go and its module cache are there.
fn published() -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tools/kubernetes");
    let listed = std::process::Command::new("go")
        .args(["list", "-m", "-f", "{{.Dir}}", "k8s.io/api"])
        .env("GOFLAGS", "-mod=mod")
        .env("GOPROXY", "off")
        .current_dir(root)
        .output();
    let folder = listed
        .ok()
        .map(|output| String::from_utf8_lossy(&output.stdout).trim().to_string());
    let data = folder
        .filter(|f| !f.is_empty())
        .map(|f| Path::new(&f).join("testdata/HEAD"));
    match data {
        Some(data) if data.is_dir() => Some(data),
        _ => {
            skip("skipped: the k8s.io/api Go module is not in the module cache, so only the kept sample was compared");
            None
        }
    }
}

fn skip(line: &str) {
    eprintln!("{line}");
}

#[test]
fn options_are_read_in_any_group() {
    let raw = encode::message(
        message_of("v1", "DeleteOptions").expect("a kind"),
        &json!({"dryRun": ["All"]}),
    );
    let body = super::wire::envelope("apps/v1", "DeleteOptions", &raw.expect("encodes"));
    let value = decode(&body).expect("decodes");
    assert_eq!(value["dryRun"], json!(["All"]));
    assert_eq!(value["apiVersion"], "apps/v1");
}

#[test]
fn an_absent_number_and_a_zero_one_are_told_apart() {
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "spec": {"replicas": 0}});
    let body = encode(&deployment).expect("a kind").expect("encodes");
    let value = decode(&body).expect("decodes");
    assert_eq!(value["spec"]["replicas"], 0);
    assert_eq!(value["spec"].get("minReadySeconds"), None);
    assert_eq!(value["spec"].get("revisionHistoryLimit"), None);
    assert_eq!(value["spec"]["strategy"], json!({}));
    assert_eq!(value["spec"]["template"]["spec"]["containers"], Value::Null);
}

#[test]
fn a_json_object_is_written_as_go_would() {
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "a", "labels": {}, "annotations": null, "creationTimestamp": null},
        "spec": {"containers": [{"name": "c", "image": "i", "args": [], "stdin": false, "resources": {"limits": {"cpu": 0.5, "memory": "1024Mi"}}}], "hostNetwork": false},
    });
    normalize("v1", "Pod", &mut pod);
    assert_eq!(
        pod,
        json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"},
            "spec": {"containers": [{"name": "c", "image": "i", "resources": {"limits": {"cpu": "500m", "memory": "1Gi"}}}]}, "status": {},
        })
    );
}

#[test]
fn malformed_bodies_are_refused_with_the_reason() {
    assert_eq!(decode(b"{}"), Err(ProtobufError::NoPrefix));
    assert_eq!(decode(b"k8s\0"), Err(ProtobufError::NoKind));
    assert!(matches!(
        decode(b"k8s\0\x0a\xff"),
        Err(ProtobufError::Wire(WireError::Truncated))
    ));
    let unknown = super::wire::envelope("v1", "Nonsense", b"");
    assert!(matches!(decode(&unknown), Err(ProtobufError::UnknownKind { .. })));
}

#[test]
fn an_endlessly_nested_schema_is_refused() {
    let mut schema = Vec::new();
    for _ in 0..2000 {
        let mut outer = Vec::new();
        super::wire::put_bytes(&mut outer, 28, &schema);
        schema = outer;
    }
    let place = MESSAGES
        .messages
        .iter()
        .position(|m| m.name.ends_with("apiextensions.v1.JSONSchemaProps"));
    let result = super::decode::message(place.expect("a message") as u32, &schema);
    assert_eq!(result, Err(ProtobufError::Wire(WireError::TooDeep)));
}

#[test]
fn a_flood_of_empty_messages_is_refused() {
    let mut spec = Vec::new();
    for _ in 0..400_000 {
        super::wire::put_bytes(&mut spec, 2, b"");
    }
    let mut pod = Vec::new();
    super::wire::put_bytes(&mut pod, 2, &spec);
    let body = super::wire::envelope("v1", "Pod", &pod);
    assert_eq!(decode(&body), Err(ProtobufError::Wire(WireError::TooLarge)));
}

proptest! {
    #[test]
    fn no_bytes_make_the_decoder_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = decode(&bytes);
        let _ = decode(&[MAGIC.as_slice(), &bytes].concat());
        let _ = decode(&super::wire::envelope("v1", "Pod", &bytes));
    }

    #[test]
    fn no_damage_to_a_real_body_makes_the_decoder_panic(at in 0usize..4000, byte in any::<u8>(), cut in 0usize..4000) {
        let mut body = include_bytes!("../../testdata/protobuf/core.v1.Pod.pb").to_vec();
        let at = at % body.len();
        body[at] = byte;
        let _ = decode(&body);
        body.truncate(cut);
        let _ = decode(&body);
    }
}
