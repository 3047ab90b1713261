//! Metrics and health over HTTP on a loopback address: `GET /metrics` and `GET /health`, one request a connection, nothing else.
//!
//! Whoever can reach it is let in, and can learn nothing but figures and names. A request has a head of [`HEAD`] bytes at most and
//! [`PATIENCE`] for everything; more than [`CONNECTIONS`] at once are closed unheard.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use tracing::warn;

/// Longest head of a request, in bytes.
const HEAD: usize = 8 << 10;
const HEADERS: usize = 64;
/// Requests at once.
const CONNECTIONS: usize = 8;
/// How long a request and its answer may take.
const PATIENCE: Duration = Duration::from_secs(2);
const TICK: Duration = Duration::from_millis(20);

/// What is said to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub status: u16,
    pub format: &'static str,
    pub body: Vec<u8>,
}

impl Answer {
    /// One line.
    pub fn line(status: u16, line: &str) -> Self {
        Answer { status, format: "text/plain; charset=utf-8", body: format!("{line}\n").into_bytes() }
    }
}

/// Answers the request for a path; none where there is nothing.
type Site = dyn Fn(&str) -> Option<Answer> + Send + Sync;

/// Serves until it is dropped.
pub(crate) struct Monitor {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    pub address: SocketAddr,
}

impl Monitor {
    /// Listens on `address`.
    pub fn start(address: SocketAddr, site: Arc<Site>) -> io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let serve = move || {
            while !stopped.load(Ordering::Acquire) {
                match listener.accept() {
                    // Each request under way has a share of the site.
                    Ok((stream, _)) if Arc::strong_count(&site) <= CONNECTIONS => answer_aside(stream, site.clone()),
                    Ok(_) => {}
                    Err(error) if error.kind() == ErrorKind::WouldBlock => thread::sleep(TICK),
                    Err(error) => {
                        // Out of file descriptors, say: it may pass.
                        warn!("metrics: {error}");
                        thread::sleep(PATIENCE);
                    }
                }
            }
        };
        let thread = thread::Builder::new().name("covey monitor".into()).spawn(serve)?;
        Ok(Monitor { stop, thread: Some(thread), address })
    }
}

impl Drop for Monitor {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn answer_aside(stream: TcpStream, site: Arc<Site>) {
    // Whether the other side hears the answer is its own affair.
    let converse = move || drop(converse(stream, &*site));
    if let Err(error) = thread::Builder::new().name("covey monitor request".into()).spawn(converse) {
        warn!("metrics: cannot start a thread: {error}");
    }
}

fn converse(mut stream: TcpStream, site: &Site) -> io::Result<()> {
    // It may be as the listener is.
    stream.set_nonblocking(false)?;
    let deadline = Instant::now() + PATIENCE;
    let mut head = vec![0; HEAD];
    let mut filled = 0;
    let (answer, body) = loop {
        stream.set_read_timeout(Some(left(deadline)?))?;
        match stream.read(&mut head[filled..])? {
            0 => return Ok(()),
            read => filled += read,
        }
        if let Some(answer) = respond(&head[..filled], site) {
            break answer;
        }
        if filled == HEAD {
            break (Answer::line(431, "the head of the request is too long"), true);
        }
    };
    let mut bytes = format!(
        "HTTP/1.1 {} {}\r\nContent-Type: {}\r\nContent-Length: {}\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n",
        answer.status,
        phrase(answer.status),
        answer.format,
        answer.body.len()
    )
    .into_bytes();
    if body {
        bytes.extend_from_slice(&answer.body);
    }
    let mut rest = &bytes[..];
    while !rest.is_empty() {
        stream.set_write_timeout(Some(left(deadline)?))?;
        match stream.write(rest)? {
            0 => return Ok(()),
            written => rest = &rest[written..],
        }
    }
    Ok(())
}

/// The answer to a request of which these bytes have come, and whether its body is sent; none where more has to come.
fn respond(bytes: &[u8], site: &Site) -> Option<(Answer, bool)> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS];
    let mut request = httparse::Request::new(&mut headers);
    match request.parse(bytes) {
        Ok(httparse::Status::Partial) => return None,
        Ok(httparse::Status::Complete(_)) => {}
        Err(httparse::Error::TooManyHeaders) => return Some((Answer::line(431, "too many headers"), true)),
        Err(_) => return Some((Answer::line(400, "this is no HTTP request"), true)),
    }
    // A page in a browser on this machine may have its own name lead here, and says that name.
    let host = request.headers.iter().find(|header| header.name.eq_ignore_ascii_case("host"));
    if host.is_some_and(|host| !is_loopback(host.value)) {
        return Some((Answer::line(421, "ask by a loopback address or as localhost"), true));
    }
    let (method, target) = (request.method.unwrap_or(""), request.path.unwrap_or(""));
    if !matches!(method, "GET" | "HEAD") {
        return Some((Answer::line(405, "GET /metrics or /health"), true));
    }
    let path = target.split('?').next().unwrap_or("");
    let answer = site(path).unwrap_or_else(|| Answer::line(404, "GET /metrics or /health"));
    Some((answer, method == "GET"))
}

/// Whether a `Host` header, with or without a port, names this machine for itself.
fn is_loopback(host: &[u8]) -> bool {
    let host = std::str::from_utf8(host).unwrap_or("").trim();
    let name = host.rsplit_once(':').filter(|(_, port)| port.parse::<u16>().is_ok()).map_or(host, |(name, _)| name);
    let name = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

fn left(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(ErrorKind::TimedOut.into()) } else { Ok(left) }
}

fn phrase(status: u16) -> &'static str {
    match status {
        200 => "OK",
        400 => "Bad Request",
        404 => "Not Found",
        405 => "Method Not Allowed",
        421 => "Misdirected Request",
        431 => "Request Header Fields Too Large",
        503 => "Service Unavailable",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn monitor() -> Monitor {
        let site = |path: &str| (path == "/health").then(|| Answer::line(200, "ok"));
        Monitor::start("127.0.0.1:0".parse().unwrap(), Arc::new(site)).unwrap()
    }

    /// What is answered to these bytes, until the connection is closed.
    fn ask(monitor: &Monitor, request: &[u8]) -> String {
        let mut stream = TcpStream::connect(monitor.address).unwrap();
        // It may be closed before all is said.
        let _ = stream.write_all(request);
        heard(stream)
    }

    fn heard(mut stream: TcpStream) -> String {
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let mut text = Vec::new();
        let ended = stream.read_to_end(&mut text);
        assert!(ended.as_ref().err().is_none_or(|error| error.kind() != ErrorKind::WouldBlock), "it was left open");
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn requests_are_answered() {
        let monitor = monitor();
        let health = ask(&monitor, b"GET /health?verbose HTTP/1.1\r\nHost: localhost\r\n\r\n");
        assert!(health.starts_with("HTTP/1.1 200 OK\r\n") && health.ends_with("\r\n\r\nok\n"), "{health}");
        assert!(health.contains("Content-Length: 3\r\n") && health.contains("Connection: close\r\n"), "{health}");
        for (host, status) in [
            ("127.0.0.1:9100", 200),
            ("[::1]:9100", 200),
            ("LOCALHOST", 200),
            ("127.0.0.1.evil.example", 421),
            ("evil.example:9100", 421),
            ("", 421),
        ] {
            let answer = ask(&monitor, format!("GET /health HTTP/1.1\r\nhost: {host}\r\n\r\n").as_bytes());
            assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{host}: {answer}");
        }
        let head = ask(&monitor, b"HEAD /health HTTP/1.0\r\n\r\n");
        assert!(head.contains("Content-Length: 3\r\n") && head.ends_with("\r\n\r\n"), "{head}");
        for (request, status) in [
            (&b"GET /secrets HTTP/1.1\r\n\r\n"[..], "404"),
            (b"GET /../health HTTP/1.1\r\n\r\n", "404"),
            (b"POST /health HTTP/1.1\r\n\r\n", "405"),
            (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "400"),
            (b"GET\r\n\r\n", "400"),
        ] {
            let answer = ask(&monitor, request);
            assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
        }
    }

    #[test]
    fn long_heads_are_refused() {
        let monitor = monitor();
        let long = [b"GET /health HTTP/1.1\r\nX: ".to_vec(), vec![b'a'; HEAD - 25]].concat();
        assert!(ask(&monitor, &long[..HEAD]).starts_with("HTTP/1.1 431 "));
        let many = format!("GET /health HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(HEADERS + 1));
        assert!(ask(&monitor, many.as_bytes()).starts_with("HTTP/1.1 431 "));
    }

    #[test]
    fn slow_requests_end_and_let_others_in() {
        let monitor = monitor();
        let slow: Vec<TcpStream> = (0..CONNECTIONS)
            .map(|_| {
                let mut stream = TcpStream::connect(monitor.address).unwrap();
                stream.write_all(b"GET /hea").unwrap();
                stream
            })
            .collect();
        slow.into_iter().for_each(|stream| assert_eq!(heard(stream), ""));
        let health = || ask(&monitor, b"GET /health HTTP/1.1\r\n\r\n");
        // The last of them may be just ending.
        assert!((0..50).any(|_| health().ends_with("ok\n") || {
            thread::sleep(TICK);
            false
        }));
    }
}
