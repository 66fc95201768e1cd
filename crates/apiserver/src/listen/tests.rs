use super::*;
use crate::auth::certificates::{Pki, server_config};
use crate::environment::Environment;
use http_body_util::{BodyExt, Empty, Full, StreamBody, combinators::BoxBody};
use rustls::ClientConfig;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_rustls::TlsConnector;

type TestBody = BoxBody<Bytes, Infallible>;

/// Says who asks; watches never end by themselves.
async fn echo(request: Request<Incoming>) -> Result<Response<TestBody>, Infallible> {
    if request.uri().query() == Some("watch=true") {
        let first = futures::stream::iter([Ok(http_body::Frame::data(Bytes::from_static(b"event\n")))]);
        let endless = futures::StreamExt::chain(first, futures::stream::pending());
        return Ok(Response::new(BodyExt::boxed(StreamBody::new(endless))));
    }
    let peer = request.extensions().get::<Arc<PeerCertificate>>();
    let name = peer.map_or("nobody".to_string(), |peer| peer.common_name.clone());
    assert!(request.extensions().get::<RemoteAddress>().is_some());
    Ok(Response::new(Full::new(Bytes::from(name)).boxed()))
}

struct Running {
    address: SocketAddr,
    pki: Pki,
    stop: CancellationToken,
    task: tokio::task::JoinHandle<()>,
}

async fn start() -> Running {
    let environment = Environment::real();
    let pki = Pki::generate(&["localhost".into()], environment.clock.now()).expect("credentials");
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let tls = server_config(&pki, environment.clock).expect("TLS");
    let stop = CancellationToken::new();
    let task = tokio::spawn(serve(listener, tls, tower::service_fn(echo), stop.clone()));
    Running {
        address,
        pki,
        stop,
        task,
    }
}

enum As {
    Nobody,
    Admin,
}

impl Running {
    async fn connect(&self, who: As, protocol: &[u8]) -> tokio_rustls::client::TlsStream<TcpStream> {
        let mut roots = rustls::RootCertStore::empty();
        let pem = |pem: &str| CertificateDer::from_pem_slice(pem.as_bytes()).expect("a certificate");
        roots.add(pem(&self.pki.authority.certificate)).expect("a root");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_root_certificates(roots);
        let mut config = match who {
            As::Nobody => builder.with_no_client_auth(),
            As::Admin => {
                let key = PrivateKeyDer::from_pem_slice(self.pki.admin.key.as_bytes()).expect("a key");
                builder
                    .with_client_auth_cert(vec![pem(&self.pki.admin.certificate)], key)
                    .expect("a client certificate")
            }
        };
        config.alpn_protocols = vec![protocol.to_vec()];
        let stream = TcpStream::connect(self.address).await.expect("a connection");
        TlsConnector::from(Arc::new(config))
            .connect(ServerName::try_from("localhost").expect("a name"), stream)
            .await
            .expect("a handshake")
    }

    async fn http2(&self, who: As) -> hyper::client::conn::http2::SendRequest<Empty<Bytes>> {
        let io = TokioIo::new(self.connect(who, b"h2").await);
        let handshake = hyper::client::conn::http2::handshake(TokioExecutor::new(), io);
        let (sender, connection) = handshake.await.expect("HTTP/2");
        tokio::spawn(connection);
        sender
    }
}

fn get(path: &str) -> Request<Empty<Bytes>> {
    Request::get(format!("https://localhost{path}"))
        .body(Empty::new())
        .expect("a request")
}

async fn text(response: Response<Incoming>) -> String {
    let bytes = response.into_body().collect().await.expect("a body").to_bytes();
    String::from_utf8(bytes.to_vec()).expect("text")
}

#[tokio::test]
async fn a_client_certificate_reaches_the_service_on_both_protocols() {
    let server = start().await;
    for (who, name) in [(As::Nobody, "nobody"), (As::Admin, "stead-admin")] {
        let mut sender = server.http2(who).await;
        assert_eq!(
            text(sender.send_request(get("/")).await.expect("an answer")).await,
            name
        );
    }
    let io = TokioIo::new(server.connect(As::Admin, b"http/1.1").await);
    let (mut sender, connection) = hyper::client::conn::http1::handshake(io).await.expect("HTTP/1.1");
    tokio::spawn(connection);
    assert_eq!(
        text(sender.send_request(get("/")).await.expect("an answer")).await,
        "stead-admin"
    );
}

#[tokio::test]
async fn stopping_ends_a_watch_with_a_complete_answer() {
    let server = start().await;
    let mut sender = server.http2(As::Admin).await;
    let response = sender.send_request(get("/?watch=true")).await.expect("an answer");
    let mut body = response.into_body();
    let first = body.frame().await.expect("a frame").expect("an event");
    assert_eq!(first.into_data().expect("data"), "event\n");
    server.stop.cancel();
    let rest = body.collect().await.expect("the stream ends without an error");
    assert!(rest.to_bytes().is_empty());
    timeout(Duration::from_secs(10), server.task)
        .await
        .expect("in time")
        .expect("no panic");
}

#[tokio::test]
async fn nonsense_instead_of_a_handshake_harms_nobody() {
    let server = start().await;
    let mut stranger = TcpStream::connect(server.address).await.expect("a connection");
    stranger.write_all(b"GET / HTTP/1.1\r\n\r\n").await.expect("a write");
    let mut answer = Vec::new();
    let _ = stranger.read_to_end(&mut answer).await;
    let mut sender = server.http2(As::Nobody).await;
    assert_eq!(
        text(sender.send_request(get("/")).await.expect("an answer")).await,
        "nobody"
    );
}

#[tokio::test]
async fn a_flood_of_resets_ends_that_connection_alone() {
    let server = start().await;
    let mut flood = server.connect(As::Nobody, b"h2").await;
    let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    bytes.extend([0, 0, 0, 4, 0, 0, 0, 0, 0]);
    // HEADERS with `:method GET`, `:scheme https`, `:path /` from the static table, then RST_STREAM, again and again.
    for stream in (1u32..20_000).step_by(2) {
        let id = stream.to_be_bytes();
        bytes.extend([0, 0, 3, 1, 5]);
        bytes.extend(id);
        bytes.extend([0x82, 0x87, 0x84]);
        bytes.extend([0, 0, 4, 3, 0]);
        bytes.extend(id);
        bytes.extend([0, 0, 0, 8]);
    }
    let _ = flood.write_all(&bytes).await;
    let mut answer = Vec::new();
    let end = timeout(Duration::from_secs(10), flood.read_to_end(&mut answer)).await;
    assert!(end.is_ok(), "the server ends the flooding connection");
    let mut sender = server.http2(As::Nobody).await;
    assert_eq!(
        text(sender.send_request(get("/")).await.expect("an answer")).await,
        "nobody"
    );
}
