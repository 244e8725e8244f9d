//! A proxy before a server: counts requests and bytes, delays, and breaks what it is told to.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use leveltable::remote::BoxFuture;
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy};
use tokio::net::{TcpListener, TcpStream};

/// A request that came by.
#[derive(Debug, Clone, Default)]
pub(crate) struct Seen {
    pub(crate) method: String,
    /// Path and query.
    pub(crate) target: String,
    /// Bytes of the body.
    pub(crate) sent: u64,
    /// Bytes of the response's body.
    pub(crate) received: u64,
}

/// What happens to a request.
pub(crate) enum Fault {
    /// Nothing: it is passed on.
    None,
    /// It is never answered.
    Stall,
    /// So many bytes of the response's body come, and no more.
    StallAfter(usize),
    /// So many bytes of the response's body come, then the connection ends.
    CutAfter(usize),
    /// This byte of the response's body is changed, if there are as many.
    FlipAt(usize),
    /// The response is this status, and the server is not asked.
    Status(u16),
    /// The server does what was asked for, and the connection ends without a response.
    LoseReply,
    /// This happens first, and then the request is passed on.
    After(BoxFuture<'static, ()>),
}

/// What happens to a request, and to how many before it the proxy was asked.
type Rule = Box<dyn FnMut(&Seen, usize) -> Fault + Send>;

pub(crate) struct Proxy {
    pub(crate) address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    upstream: SocketAddr,
    delay: Mutex<Duration>,
    rule: Mutex<Rule>,
    /// How many requests there were since the rule was set.
    count: Mutex<usize>,
    seen: Mutex<Vec<(Seen, Arc<AtomicU64>)>>,
}

impl Proxy {
    /// A proxy before `upstream`, as long as the runtime lives.
    pub(crate) async fn start(upstream: SocketAddr) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let shared = Arc::new(Shared {
            upstream,
            delay: Mutex::default(),
            rule: Mutex::new(Box::new(|_, _| Fault::None)),
            count: Mutex::default(),
            seen: Mutex::default(),
        });
        let proxy = Proxy {
            address: listener.local_addr().unwrap(),
            shared: Arc::clone(&shared),
        };
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let shared = Arc::clone(&shared);
                // A connection that breaks is the client's to notice.
                tokio::spawn(async move { drop(shared.serve(client).await) });
            }
        });
        proxy
    }

    /// Delays each request from now on.
    pub(crate) fn delay(&self, delay: Duration) {
        *self.shared.delay.lock().unwrap() = delay;
    }

    /// What happens to requests from now on. The rule is told how many there were since.
    pub(crate) fn rule(&self, rule: impl FnMut(&Seen, usize) -> Fault + Send + 'static) {
        *self.shared.rule.lock().unwrap() = Box::new(rule);
        *self.shared.count.lock().unwrap() = 0;
        self.take();
    }

    /// The requests since this was last called. Those that are not answered yet have `received` less.
    pub(crate) fn take(&self) -> Vec<Seen> {
        let seen = std::mem::take(&mut *self.shared.seen.lock().unwrap());
        let with_received = |(request, received): (Seen, Arc<AtomicU64>)| Seen {
            received: received.load(Ordering::Relaxed),
            ..request
        };
        seen.into_iter().map(with_received).collect()
    }
}

impl Shared {
    /// Serves one request of a connection, which then ends: so no response needs to be understood.
    async fn serve(&self, mut client: TcpStream) -> std::io::Result<()> {
        client.set_nodelay(true)?;
        let Some((head, mut body)) = read_head(&mut client).await? else {
            return Ok(());
        };
        let text = String::from_utf8_lossy(&head).into_owned();
        let mut words = text.split(' ');
        let mut next = || words.next().unwrap_or_default().to_owned();
        let mut request = Seen {
            method: next(),
            target: next(),
            ..Seen::default()
        };
        let length = header(&text, "content-length").map_or(0, |value| value.parse().unwrap());
        while (body.len() as u64) < length {
            if client.read_buf(&mut body).await? == 0 {
                return Ok(());
            }
        }
        request.sent = length;
        let received = Arc::new(AtomicU64::new(0));
        let counted = (request.clone(), Arc::clone(&received));
        self.seen.lock().unwrap().push(counted);
        let delay = *self.delay.lock().unwrap();
        tokio::time::sleep(delay).await;
        let mut fault = {
            let mut rule = self.rule.lock().unwrap();
            let mut count = self.count.lock().unwrap();
            *count += 1;
            rule(&request, *count - 1)
        };
        let (mut most, mut flip_at) = (usize::MAX, usize::MAX);
        match fault {
            Fault::None => {}
            Fault::Stall => std::future::pending().await,
            Fault::Status(status) => {
                let response = format!(
                    "HTTP/1.1 {status} So\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
                );
                return client.write_all(response.as_bytes()).await;
            }
            Fault::StallAfter(bytes) | Fault::CutAfter(bytes) => most = bytes,
            Fault::FlipAt(at) => flip_at = at,
            Fault::LoseReply => {}
            Fault::After(ref mut work) => work.await,
        }
        let mut server = TcpStream::connect(self.upstream).await?;
        server.set_nodelay(true)?;
        let head = text.replacen("\r\n", "\r\nConnection: close\r\n", 1);
        server.write_all(head.as_bytes()).await?;
        server.write_all(&body).await?;
        drop(body);
        if matches!(fault, Fault::LoseReply) {
            copy(&mut server, &mut tokio::io::sink()).await?;
            return Ok(());
        }
        let Some((head, mut chunk)) = read_head(&mut server).await? else {
            return Ok(());
        };
        client.write_all(&head).await?;
        let mut passed = 0;
        loop {
            let len = chunk.len().min(most - passed);
            if let Some(byte) = flip_at.checked_sub(passed).and_then(|at| chunk.get_mut(at)) {
                *byte ^= 1;
            }
            passed += len;
            received.fetch_add(len as u64, Ordering::Relaxed);
            client.write_all(&chunk[..len]).await?;
            if passed == most {
                break;
            }
            chunk.clear();
            if server.read_buf(&mut chunk).await? == 0 {
                break;
            }
        }
        if matches!(fault, Fault::StallAfter(_)) {
            std::future::pending::<()>().await;
        }
        Ok(())
    }
}

/// The head of a message with its empty line, and what came with it; `None` if the connection ends before.
async fn read_head(stream: &mut TcpStream) -> std::io::Result<Option<(Vec<u8>, Vec<u8>)>> {
    let mut bytes = Vec::with_capacity(64 << 10);
    loop {
        let end = bytes.windows(4).position(|window| window == b"\r\n\r\n");
        if let Some(end) = end {
            let rest = bytes.split_off(end + 4);
            let mut body = Vec::with_capacity(256 << 10);
            body.extend_from_slice(&rest);
            return Ok(Some((bytes, body)));
        }
        if stream.read_buf(&mut bytes).await? == 0 {
            return Ok(None);
        }
    }
}

fn header(head: &str, name: &str) -> Option<String> {
    let fields = head.lines().filter_map(|line| line.split_once(':'));
    let mut found = fields.filter(|(field, _)| field.eq_ignore_ascii_case(name));
    found.next().map(|(_, value)| value.trim().to_owned())
}
