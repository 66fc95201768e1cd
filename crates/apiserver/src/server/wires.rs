//! How the server reaches addresses that are not on its own network.
//!
//! Pods of an embedded cluster are on a network that the machine has no route to. Whoever runs them knows the way, and
//! lends it to the server: for `proxy` of pods and services, and for webhooks behind a Service.

use futures::future::BoxFuture;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use tokio::net::TcpStream;

/// A way to addresses of a network that is not the server's own.
pub trait Dial: Send + Sync + 'static {
    /// Connects; `None` if the address is not on that network.
    fn dial(&self, to: SocketAddr) -> Option<BoxFuture<'static, io::Result<TcpStream>>>;
}

/// The ways that a server has.
#[derive(Clone, Default)]
pub struct Wires(Option<Arc<dyn Dial>>);

impl Wires {
    pub fn through(dial: Arc<dyn Dial>) -> Wires {
        Wires(Some(dial))
    }

    /// Connects to a host, by the lent way if it leads there.
    pub async fn connect(&self, host: &str, port: u16) -> io::Result<TcpStream> {
        let address = host
            .parse::<IpAddr>()
            .ok()
            .map(|address| SocketAddr::new(address, port));
        let lent = self
            .0
            .as_ref()
            .zip(address)
            .and_then(|(dial, address)| dial.dial(address));
        let stream = match lent {
            Some(connecting) => connecting.await?,
            None => TcpStream::connect((host, port)).await?,
        };
        stream.set_nodelay(true)?;
        Ok(stream)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Knows one address, and leads to another.
    struct Lent(SocketAddr);

    impl Dial for Lent {
        fn dial(&self, to: SocketAddr) -> Option<BoxFuture<'static, io::Result<TcpStream>>> {
            let real = self.0;
            let known = to.ip() == IpAddr::from([198, 18, 0, 9]);
            known.then(|| Box::pin(TcpStream::connect(real)) as BoxFuture<'static, _>)
        }
    }

    #[tokio::test]
    async fn an_address_of_the_other_network_is_reached_by_the_lent_way() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let own = listener.local_addr().unwrap();
        let wires = Wires::through(Arc::new(Lent(own)));
        assert_eq!(wires.connect("198.18.0.9", 80).await.unwrap().peer_addr().unwrap(), own);
        assert_eq!(
            wires
                .connect("127.0.0.1", own.port())
                .await
                .unwrap()
                .peer_addr()
                .unwrap(),
            own
        );
    }
}
