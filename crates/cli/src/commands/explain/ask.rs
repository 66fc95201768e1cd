//! One question to an operator's admin endpoint, over whatever stream leads there.

use anyhow::{Context, Result, anyhow, bail};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use kube::core::{ApiResource, DynamicObject};
use kube::{Api, Client};
use serde_json::Value;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;

/// The port of the probes in the operator's pods.
const PORT: u16 = 8081;
/// An operator that does not answer by then does not answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// The operator keeps less than that of a key.
const LONGEST: u64 = 16 << 20;

/// What is asked.
pub struct Question<'a> {
    pub kind: &'a str,
    pub namespace: &'a str,
    pub name: &'a str,
}

/// Asks an operator at an address.
pub async fn at(address: SocketAddr, question: &Question<'_>) -> Result<Vec<Value>> {
    let asked = async {
        let stream = TcpStream::connect(address).await?;
        ask(stream, question).await
    };
    tokio::time::timeout(PATIENCE, asked).await.context("it is silent")?
}

/// Asks the pod that leads.
pub async fn leader(client: Client, namespace: &str, question: &Question<'_>) -> Result<Vec<Value>> {
    let asked = async {
        let leases: Api<Lease> = Api::namespaced(client.clone(), namespace);
        let lease = leases.get(super::operator::NAME).await.context("no Lease of it")?;
        let holder = lease.spec.and_then(|spec| spec.holder_identity);
        let holder = holder.filter(|name| !name.is_empty()).context("nobody leads")?;
        let pods: Api<Pod> = Api::namespaced(client, namespace);
        let mut forwarded = pods
            .portforward(&holder, &[PORT])
            .await
            .with_context(|| format!("no connection to pod {holder}"))?;
        let stream = forwarded.take_stream(PORT).context("no stream to its port")?;
        ask(stream, question).await
    };
    tokio::time::timeout(PATIENCE, asked).await.context("it is silent")?
}

/// The identity of the object in question in a cluster, if it is there.
pub async fn uid(client: &Client, kind: &Value, question: &Question<'_>) -> Result<Option<String>> {
    let text = |name: &str| kind[name].as_str().unwrap_or_default().to_owned();
    let api_version = text("apiVersion");
    let (group, version) = api_version.split_once('/').unwrap_or(("", &api_version));
    let resource = ApiResource {
        group: group.to_owned(),
        version: version.to_owned(),
        kind: question.kind.to_owned(),
        plural: text("plural"),
        api_version: api_version.clone(),
    };
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), question.namespace, &resource);
    match tokio::time::timeout(PATIENCE, api.get(question.name)).await? {
        Ok(object) => Ok(object.metadata.uid),
        // A cluster that does not know the kind has no such object either.
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// HTTP by hand: one request and its answer, on a connection that is closed after it.
async fn ask(mut stream: impl AsyncRead + AsyncWrite + Unpin, question: &Question<'_>) -> Result<Vec<Value>> {
    let request = format!(
        "GET /debug/reconciles?kind={}&key={}/{} HTTP/1.0\r\nHost: localhost\r\nConnection: close\r\n\r\n",
        encode(question.kind),
        encode(question.namespace),
        encode(question.name)
    );
    stream.write_all(request.as_bytes()).await?;
    let mut bytes = Vec::new();
    stream.take(LONGEST).read_to_end(&mut bytes).await?;
    parse(&bytes)
}

fn parse(bytes: &[u8]) -> Result<Vec<Value>> {
    let text = std::str::from_utf8(bytes).context("the answer is not text")?;
    let (head, body) = text.split_once("\r\n\r\n").context("the answer is not HTTP")?;
    let status = head.split_whitespace().nth(1).unwrap_or_default();
    if status != "200" {
        bail!("it answered {status}: {}", body.trim());
    }
    serde_json::from_str(body).map_err(|error| anyhow!("its answer cannot be read: {error}"))
}

/// Everything that could mean something in a URL.
fn encode(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' => encoded.push(char::from(byte)),
            other => encoded.push_str(&format!("%{other:02X}")),
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_a_body_or_a_complaint() {
        assert_eq!(parse(b"HTTP/1.0 200 OK\r\na: b\r\n\r\n[1]").unwrap(), [Value::from(1)]);
        let refused = parse(b"HTTP/1.0 403 Forbidden\r\n\r\nonly from this machine").unwrap_err();
        assert_eq!(refused.to_string(), "it answered 403: only from this machine");
        assert!(parse(b"SSH-2.0").is_err());
    }

    #[test]
    fn what_people_type_stays_one_question() {
        assert_eq!(encode("a b&key=x/y"), "a%20b%26key%3Dx%2Fy");
    }
}
