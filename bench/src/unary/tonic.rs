//! tonic: a unary call, current-thread runtimes at both ends. Messages are plain bytes, without a protobuf around them,
//! and the server has no router: nothing is done that we do not do.

use super::PAYLOAD;
use crate::Result;
use crate::host::{Host, Kind, WithHost};
use crate::pin::Placement;
use crate::subject::{Recorder, Slice, Stretch, Subject};
use bytes::{Buf, BufMut, Bytes};
use futures_util::stream;
use http::uri::PathAndQuery;
use std::convert::Infallible;
use std::future::{Future, Ready, ready};
use std::path::PathBuf;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::net::UnixListener;
use tokio::runtime::{Builder, Runtime};
use tonic::body::Body;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::server::UnaryService;
use tonic::transport::{Channel, Endpoint, Server};
use tonic::{Request, Response, Status};
use tower_service::Service;

const METHOD: &str = "/bench.Echo/Echo";

/// A client of a server in a process of its own.
pub(crate) fn open(placement: &Placement) -> Result<Box<dyn Subject>> {
    let path = SocketPath::new();
    let address = path.0.to_str().ok_or("the folder for temporary files has no plain name")?;
    let host = Host::start(Kind::Tonic, address, placement)?;
    let runtime = runtime()?;
    let endpoint = Endpoint::from_shared(format!("unix://{address}"))?;
    let channel = runtime.block_on(endpoint.connect())?;
    let subject = Calls { client: tonic::client::Grpc::new(channel), runtime, _path: path };
    Ok(Box::new(WithHost { subject, host }))
}

/// Serves at that path until `stay` returns.
pub(crate) fn serve(path: &str, stay: impl FnOnce() -> Result<()> + Send + 'static) -> Result<()> {
    runtime()?.block_on(async {
        let listener = UnixListener::bind(path)?;
        let incoming = stream::unfold(listener, |listener| async {
            let accepted = listener.accept().await.map(|(socket, _)| socket);
            Some((accepted, listener))
        });
        let (over, is_over) = tokio::sync::oneshot::channel();
        // It only sleeps until it is over: the listener listens already.
        std::thread::spawn(move || over.send(stay()));
        let shutdown = async { drop(is_over.await) };
        tokio::select! {
            served = Server::builder().serve_with_incoming(EchoServer, incoming) => served?,
            () = shutdown => {}
        }
        Ok(())
    })
}

fn runtime() -> Result<Runtime> {
    Ok(Builder::new_current_thread().enable_all().build()?)
}

/// A socket's file, removed at the end.
struct SocketPath(PathBuf);

impl SocketPath {
    fn new() -> Self {
        Self(std::env::temp_dir().join(format!("hw-bench-{}.sock", std::process::id())))
    }
}

impl Drop for SocketPath {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_file(&self.0) {
            eprintln!("hw-bench: {} stays: {error}", self.0.display());
        }
    }
}

struct Calls {
    client: tonic::client::Grpc<Channel>,
    runtime: Runtime,
    _path: SocketPath,
}

impl Subject for Calls {
    fn run(&mut self, length: Duration, recorder: &mut Recorder) -> Result<Slice> {
        let Self { client, runtime, .. } = self;
        runtime.block_on(async {
            let stretch = Stretch::begin()?;
            let (mut asked, mut count) = (stretch.began(), 0);
            while asked - stretch.began() < length {
                client.ready().await?;
                let request = Request::new(Bytes::from_static(&PAYLOAD));
                let reply = client.unary(request, PathAndQuery::from_static(METHOD), Plain).await?;
                let came = reply.into_inner().len();
                if came != PAYLOAD.len() {
                    return Err(format!("{came} bytes came back").into());
                }
                let answered = Instant::now();
                recorder.record(answered - asked);
                asked = answered;
                count += 1;
            }
            stretch.end(count)
        })
    }
}

/// The server: every request is the one it knows.
#[derive(Clone)]
struct EchoServer;

impl Service<http::Request<Body>> for EchoServer {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = std::result::Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<std::result::Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        Box::pin(async { Ok(tonic::server::Grpc::new(Plain).unary(Echo, request).await) })
    }
}

struct Echo;

impl UnaryService<Bytes> for Echo {
    type Response = Bytes;
    type Future = Ready<std::result::Result<Response<Bytes>, Status>>;

    fn call(&mut self, request: Request<Bytes>) -> Self::Future {
        ready(Ok(Response::new(request.into_inner())))
    }
}

/// Bytes as they are.
#[derive(Clone, Copy, Default)]
struct Plain;

impl Codec for Plain {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for Plain {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, item: Bytes, buffer: &mut EncodeBuf<'_>) -> std::result::Result<(), Status> {
        buffer.put(item);
        Ok(())
    }
}

impl Decoder for Plain {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> std::result::Result<Option<Bytes>, Status> {
        Ok(Some(buffer.copy_to_bytes(buffer.remaining())))
    }
}
