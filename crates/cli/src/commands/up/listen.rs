//! Where a cluster listens: what the user says, or a free loopback port that stays the same.

use crate::failure::Hint;
use crate::terminal::{Line, tell};
use anyhow::{Context, Result, anyhow};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, ToSocketAddrs};
use std::path::Path;

/// `HOST:PORT` as given, and the addresses that it means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    host: String,
    addresses: Vec<SocketAddr>,
}

/// The socket that clients connect to, and how they name it.
pub struct Bound {
    pub socket: TcpListener,
    /// `127.0.0.1:6443`: what goes into a kubeconfig.
    pub server: String,
    /// A host that the serving certificate has to name beside the usual ones.
    pub host: String,
}

impl std::str::FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let (host, _) = text
            .rsplit_once(':')
            .ok_or("an address is HOST:PORT, as in 127.0.0.1:6443")?;
        let addresses: Vec<SocketAddr> = text.to_socket_addrs().map_err(|error| error.to_string())?.collect();
        if addresses.is_empty() {
            return Err(format!("{host} has no address"));
        }
        Ok(Address {
            host: host.trim_matches(['[', ']']).to_string(),
            addresses,
        })
    }
}

/// Binds what the user asked for.
pub fn given(address: &Address) -> Result<Bound> {
    let socket = TcpListener::bind(address.addresses.as_slice())
        .with_context(|| format!("cannot listen on {}", shown(address)))
        .hint("another program may have that port: choose another one, or leave --listen out for a free one")?;
    let local = socket.local_addr()?;
    if !local.ip().is_loopback() {
        tell(Line::Note, &format!("{local} can be reached from other machines"));
    }
    let unspecified = local.ip().is_unspecified();
    let reachable = if unspecified {
        SocketAddr::from((Ipv4Addr::LOCALHOST, local.port())).to_string()
    } else {
        local.to_string()
    };
    Ok(Bound {
        socket,
        server: reachable,
        host: if unspecified {
            String::new()
        } else {
            address.host.clone()
        },
    })
}

fn shown(address: &Address) -> String {
    let port = address.addresses.first().map_or(0, SocketAddr::port);
    format!("{}:{port}", address.host)
}

/// Binds the loopback port that the directory remembers, or a free one that it remembers from now on.
pub fn remembered(directory: &Path) -> Result<Bound> {
    let file = directory.join("port");
    let kept = std::fs::read_to_string(&file)
        .ok()
        .and_then(|text| text.trim().parse::<u16>().ok());
    let loopback = |port| TcpListener::bind((Ipv4Addr::LOCALHOST, port));
    let socket = match kept.map(loopback) {
        Some(Ok(socket)) => socket,
        failed => {
            if let (Some(port), Some(Err(error))) = (kept, failed) {
                let text = format!("port {port} of this cluster cannot be had ({error}); taking another one");
                tell(Line::Note, &text);
            }
            let socket = loopback(0).context("cannot listen on a loopback port")?;
            let port = socket.local_addr()?.port();
            std::fs::write(&file, format!("{port}\n"))
                .with_context(|| format!("cannot write {}", file.display()))
                .hint("choose a directory that you may write to, with --data DIR, or use --ephemeral")?;
            socket
        }
    };
    let server = socket.local_addr()?.to_string();
    Ok(Bound {
        socket,
        server,
        host: String::new(),
    })
}

/// Makes a bound socket one that the runtime can use.
pub fn into_tokio(socket: TcpListener) -> Result<tokio::net::TcpListener> {
    socket.set_nonblocking(true).context("cannot use the socket")?;
    tokio::net::TcpListener::from_std(socket).map_err(|error| anyhow!("cannot use the socket: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_needs_a_port() {
        assert!("127.0.0.1:6443".parse::<Address>().is_ok());
        assert_eq!(
            "[::1]:6443".parse::<Address>().map(|address| address.host),
            Ok("::1".to_string())
        );
        assert!("127.0.0.1".parse::<Address>().is_err());
        assert!("127.0.0.1:99999".parse::<Address>().is_err());
        assert!("".parse::<Address>().is_err());
    }
}
