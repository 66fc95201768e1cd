//! A cable between a replica and the API server, which a test can pull.

use std::net::SocketAddr;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// Forwards connections, until it is cut. Then nothing comes through in either direction, and nobody is told:
/// connections stay open and new ones are accepted, as when a router in between drops every packet.
pub struct Proxy {
    address: SocketAddr,
    whole: watch::Sender<bool>,
}

impl Proxy {
    /// A proxy for `https://HOST:PORT`.
    pub async fn start(server: &str) -> Proxy {
        let server = server.trim_start_matches("https://").trim_end_matches('/').to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("a port");
        let whole = watch::Sender::new(true);
        let state = whole.subscribe();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(forward(stream, server.clone(), state.clone()));
            }
        });
        Proxy { address, whole }
    }

    /// `https://127.0.0.1:PORT`.
    pub fn address(&self) -> String {
        format!("https://{}", self.address)
    }

    pub fn cut(&mut self) {
        self.whole.send_replace(false);
    }

    /// Connections of before are gone, new ones come through.
    pub async fn mend(&mut self) {
        self.whole.send_replace(true);
    }
}

async fn forward(mut near: TcpStream, server: String, mut whole: watch::Receiver<bool>) {
    // A connection that is opened while the cable is out waits; so does one that was open. When the cable is back,
    // both ends find out that the connection is dead.
    if !*whole.borrow_and_update() {
        let _ = whole.wait_for(|whole| *whole).await;
        return;
    }
    let Ok(mut far) = TcpStream::connect(&server).await else {
        return;
    };
    let mut cut = whole.clone();
    let is_cut = async {
        let _ = cut.wait_for(|whole| !*whole).await;
    };
    tokio::select! {
        _ = copy_bidirectional(&mut near, &mut far) => return,
        () = is_cut => {}
    }
    let _ = whole.wait_for(|whole| *whole).await;
}
