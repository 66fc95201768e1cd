//! A small HTTP/1.1 client over TLS, so that measuring costs as little as possible beside what is measured.

use anyhow::{Context, Result, anyhow, bail};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, ClientConnection, DigitallySignedStruct, SignatureScheme, StreamOwned};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

/// Longer than any answer takes; a server that is stuck fails the benchmark instead of holding it up.
const PATIENCE: Duration = Duration::from_secs(120);

/// Where a server is, and how to be its administrator.
#[derive(Clone)]
pub struct Target {
    address: String,
    tls: Arc<ClientConfig>,
    token: Option<String>,
}

pub enum Credentials {
    Token(String),
    Certificate { chain: Vec<u8>, key: Vec<u8> },
}

pub struct Connection {
    target: Target,
    stream: BufReader<StreamOwned<ClientConnection, TcpStream>>,
}

pub struct Answer {
    pub status: u16,
    pub body: Vec<u8>,
}

/// The body of an answer while it is read.
pub struct Body<'a> {
    stream: &'a mut BufReader<StreamOwned<ClientConnection, TcpStream>>,
    left: Left,
}

enum Left {
    Bytes(u64),
    /// In the current chunk.
    Chunk(u64),
    Nothing,
}

impl Target {
    pub fn new(address: &str, credentials: Credentials) -> Result<Target> {
        let provider = Arc::new(ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Trusting { provider }));
        let (tls, token) = match credentials {
            Credentials::Token(token) => (builder.with_no_client_auth(), Some(token)),
            Credentials::Certificate { chain, key } => {
                let chain: Vec<_> = CertificateDer::pem_slice_iter(&chain).collect::<Result<_, _>>()?;
                let key = PrivateKeyDer::from_pem_slice(&key)?;
                (builder.with_client_auth_cert(chain, key)?, None)
            }
        };
        Ok(Target {
            address: address.to_string(),
            tls: Arc::new(tls),
            token,
        })
    }

    pub fn connect(&self) -> Result<Connection> {
        let socket = TcpStream::connect(&self.address)?;
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        let host = self.address.rsplit_once(':').context("an address has a port")?.0;
        let name = ServerName::try_from(host.to_string())?;
        let tls = ClientConnection::new(self.tls.clone(), name)?;
        Ok(Connection {
            target: self.clone(),
            stream: BufReader::with_capacity(64 << 10, StreamOwned::new(tls, socket)),
        })
    }
}

impl Connection {
    /// Sends a request and reads the whole answer.
    pub fn call(&mut self, method: &str, path: &str, body: &[u8]) -> Result<Answer> {
        let (status, mut answer) = self.open(method, path, body)?;
        let mut body = Vec::new();
        answer.read_to_end(&mut body)?;
        Ok(Answer { status, body })
    }

    /// Like `call`, for answers that can only be a success.
    pub fn expect(&mut self, method: &str, path: &str, body: &[u8]) -> Result<Vec<u8>> {
        let answer = self.call(method, path, body)?;
        if answer.status >= 300 {
            let text = String::from_utf8_lossy(&answer.body);
            bail!("{method} {path}: {} {text}", answer.status);
        }
        Ok(answer.body)
    }

    /// Sends a request, and leaves the body to be read.
    pub fn open(&mut self, method: &str, path: &str, body: &[u8]) -> Result<(u16, Body<'_>)> {
        // The only patches that are measured are applies.
        let content = match method {
            "PATCH" => "application/apply-patch+yaml",
            _ => "application/json",
        };
        let mut request = format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nAccept: application/json\r\nContent-Type: {content}\r\n",
            self.target.address
        );
        if let Some(token) = &self.target.token {
            request.push_str(&format!("Authorization: Bearer {token}\r\n"));
        }
        request.push_str(&format!("Content-Length: {}\r\n\r\n", body.len()));
        let mut request = request.into_bytes();
        request.extend_from_slice(body);
        let stream = self.stream.get_mut();
        stream.write_all(&request)?;
        stream.flush()?;
        let status = self.line()?;
        let status = status.split(' ').nth(1).and_then(|code| code.parse().ok());
        let status: u16 = status.ok_or_else(|| anyhow!("no status line"))?;
        let mut left = Left::Nothing;
        loop {
            let line = self.line()?;
            if line.is_empty() {
                break;
            }
            let (name, value) = line.split_once(':').context("a header has a colon")?;
            match name.to_ascii_lowercase().as_str() {
                "content-length" => left = Left::Bytes(value.trim().parse()?),
                "transfer-encoding" => left = Left::Chunk(0),
                _ => {}
            }
        }
        let stream = &mut self.stream;
        Ok((status, Body { stream, left }))
    }

    fn line(&mut self) -> Result<String> {
        line(&mut self.stream)
    }
}

fn line(stream: &mut impl BufRead) -> Result<String> {
    let mut line = String::new();
    if stream.read_line(&mut line)? == 0 {
        bail!("the server closed the connection");
    }
    Ok(line.trim_end().to_string())
}

impl Read for Body<'_> {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        if let Left::Chunk(0) = self.left {
            let size = line(self.stream).map_err(std::io::Error::other)?;
            let size = u64::from_str_radix(&size, 16).map_err(std::io::Error::other)?;
            self.left = Left::Chunk(size);
            if size == 0 {
                line(self.stream).map_err(std::io::Error::other)?;
                self.left = Left::Nothing;
            }
        }
        let (Left::Bytes(left) | Left::Chunk(left)) = &mut self.left else {
            return Ok(0);
        };
        if *left == 0 {
            // Reading nothing would still wait for the next answer.
            return Ok(0);
        }
        let most = out.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
        let count = self.stream.read(&mut out[..most])?;
        *left -= count as u64;
        if matches!(self.left, Left::Chunk(0)) {
            line(self.stream).map_err(std::io::Error::other)?;
        }
        Ok(count)
    }
}

/// Trusts every server: both are ours and on loopback, and the real one signs its own certificate.
#[derive(Debug)]
struct Trusting {
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Trusting {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
