//! Calls to whichever member of etcd answers.

use super::layout::Layout;
use super::proto::{
    CompactionRequest, CompactionResponse, RangeRequest, RangeResponse, ResponseHeader, TxnRequest, TxnResponse,
    WatchRequest, WatchResponse,
};
use crate::store::Revision;
use http::uri::PathAndQuery;
use prost::Message;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio_stream::wrappers::ReceiverStream;
use tonic::client::Grpc;
use tonic::metadata::MetadataValue;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status, Streaming};
use tonic_prost::ProstCodec;

/// A member that takes longer for one call is given up for the next one.
const CALL_TIMEOUT: Duration = Duration::from_secs(3);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// A member that vanished without closing its connections is noticed after about twice this.
const KEEP_ALIVE: Duration = Duration::from_secs(2);

/// A page of large objects, or a watch response after a long absence, is far larger than the usual 4 MiB.
const LARGEST_MESSAGE: usize = 1 << 30;

pub(super) struct Client {
    members: Vec<Channel>,
    /// The one in use; an index that only grows, modulo the number of members.
    current: AtomicUsize,
}

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    /// No answer, or one that another member may not give. The request may have been carried out.
    #[error("etcd: {0}")]
    Unreachable(String),
    #[error("etcd: {0}")]
    NoSpace(String),
    /// The revision that was asked for is compacted.
    #[error("etcd: {0}")]
    Compacted(String),
    /// An answer that every member would give.
    #[error("etcd: {0}")]
    Refused(String),
}

/// The answer to a transaction.
pub(super) struct Outcome {
    pub(super) succeeded: bool,
    pub(super) revision: Revision,
}

impl Client {
    pub(super) fn new(members: &[String]) -> Result<Client, Failure> {
        let channel = |member: &String| {
            let endpoint = Endpoint::from_shared(format!("http://{member}"));
            let endpoint = endpoint.map_err(|error| Failure::Refused(error.to_string()))?;
            Ok(endpoint
                .connect_timeout(CONNECT_TIMEOUT)
                .http2_keep_alive_interval(KEEP_ALIVE)
                .keep_alive_timeout(KEEP_ALIVE)
                .keep_alive_while_idle(true)
                .tcp_nodelay(true)
                .connect_lazy())
        };
        Ok(Client {
            members: members.iter().map(channel).collect::<Result<_, _>>()?,
            current: AtomicUsize::new(0),
        })
    }

    pub(super) async fn transact(&self, request: &TxnRequest) -> Result<Outcome, Failure> {
        let answer: TxnResponse = self.call("/etcdserverpb.KV/Txn", request.clone()).await?;
        Ok(Outcome {
            succeeded: answer.succeeded,
            revision: revision(answer.header),
        })
    }

    pub(super) async fn range(&self, request: RangeRequest) -> Result<RangeResponse, Failure> {
        self.call("/etcdserverpb.KV/Range", request).await
    }

    /// The newest revision that a quorum knows.
    pub(super) async fn revision(&self, layout: &Layout) -> Result<Revision, Failure> {
        let request = RangeRequest {
            key: layout.deleted(),
            count_only: true,
            ..RangeRequest::default()
        };
        Ok(revision(self.range(request).await?.header))
    }

    pub(super) async fn compact(&self, revision: Revision) -> Result<(), Failure> {
        let revision = i64::try_from(revision.0).unwrap_or(i64::MAX);
        let request = CompactionRequest { revision };
        let _: CompactionResponse = self.call("/etcdserverpb.KV/Compact", request).await?;
        Ok(())
    }

    /// Opens a stream of changes on the current member.
    pub(super) async fn watch(
        &self,
        requests: ReceiverStream<WatchRequest>,
    ) -> Result<Streaming<WatchResponse>, Failure> {
        let (turn, mut grpc) = self.member();
        let mut request = Request::new(requests);
        // A member that is cut off from the others ends the stream instead of staying silent.
        request
            .metadata_mut()
            .insert("hasleader", MetadataValue::from_static("true"));
        let path = PathAndQuery::from_static("/etcdserverpb.Watch/Watch");
        let opened = async {
            grpc.ready()
                .await
                .map_err(|error| Status::unavailable(error.to_string()))?;
            grpc.streaming(request, path, ProstCodec::default()).await
        };
        match tokio::time::timeout(CALL_TIMEOUT, opened).await {
            Ok(Ok(stream)) => Ok(stream.into_inner()),
            Ok(Err(status)) => Err(self.turn_away(turn, status)),
            Err(_) => Err(self.turn_away(turn, Status::deadline_exceeded("no answer in time"))),
        }
    }

    /// Lets the next call go to another member.
    pub(super) fn next_member(&self) {
        self.current.fetch_add(1, Ordering::Relaxed);
    }

    async fn call<Q, A>(&self, path: &'static str, request: Q) -> Result<A, Failure>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
    {
        let (turn, mut grpc) = self.member();
        let answered = async {
            grpc.ready()
                .await
                .map_err(|error| Status::unavailable(error.to_string()))?;
            let path = PathAndQuery::from_static(path);
            grpc.unary(Request::new(request), path, ProstCodec::<Q, A>::default())
                .await
        };
        match tokio::time::timeout(CALL_TIMEOUT, answered).await {
            Ok(Ok(answer)) => Ok(answer.into_inner()),
            Ok(Err(status)) => Err(self.turn_away(turn, status)),
            Err(_) => Err(self.turn_away(turn, Status::deadline_exceeded("no answer in time"))),
        }
    }

    fn member(&self) -> (usize, Grpc<Channel>) {
        let turn = self.current.load(Ordering::Relaxed);
        let channel = self.members[turn % self.members.len()].clone();
        (turn, Grpc::new(channel).max_decoding_message_size(LARGEST_MESSAGE))
    }

    /// Classifies a failure. Where another member may do better, the next call goes there; of many calls that
    /// failed on one member together, only the first moves on.
    fn turn_away(&self, turn: usize, status: Status) -> Failure {
        let message = status.message().to_string();
        match status.code() {
            Code::ResourceExhausted => Failure::NoSpace(message),
            Code::OutOfRange if message.contains("compacted") => Failure::Compacted(message),
            Code::InvalidArgument | Code::PermissionDenied | Code::Unauthenticated | Code::Unimplemented => {
                Failure::Refused(message)
            }
            _ => {
                let moved = self
                    .current
                    .compare_exchange(turn, turn + 1, Ordering::Relaxed, Ordering::Relaxed);
                tracing::debug!(moved = moved.is_ok(), %status, "a member of etcd failed");
                Failure::Unreachable(message)
            }
        }
    }
}

impl Failure {
    /// Trying again, or elsewhere, would not help.
    pub(super) fn is_final(&self) -> bool {
        match self {
            Failure::Unreachable(_) => false,
            Failure::NoSpace(_) | Failure::Refused(_) | Failure::Compacted(_) => true,
        }
    }
}

pub(super) fn revision(header: Option<ResponseHeader>) -> Revision {
    let revision = header.map_or(0, |header| header.revision);
    Revision(u64::try_from(revision).unwrap_or(0))
}
