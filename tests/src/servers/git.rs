//! A git server over smart HTTP: git's own backend behind hyper.

use super::Server;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use std::convert::Infallible;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

/// A repository `project.git` with one commit, below `directory`.
pub fn repository(git: &Path, directory: &Path) {
    let work = directory.join("work");
    std::fs::create_dir_all(&work).expect("create the repository");
    std::fs::write(work.join("README"), "a file from the repository\n").expect("write a file");
    let steps: [&[&str]; 4] = [
        &["init", "--quiet", "--initial-branch=main"],
        &["add", "."],
        &[
            "-c",
            "user.name=t",
            "-c",
            "user.email=t@t",
            "commit",
            "--quiet",
            "--message=first",
        ],
        &["clone", "--quiet", "--bare", ".", "../project.git"],
    ];
    for step in steps {
        let done = Command::new(git)
            .args(step)
            .current_dir(&work)
            .status()
            .expect("run git");
        assert!(done.success(), "git {step:?} failed");
    }
}

/// Serves the repositories below `directory`.
pub fn git(ip: &str, git: &Path, directory: &Path) -> Server {
    let backend = Arc::new((git.to_owned(), directory.to_owned()));
    Server::start(ip, move |stream| {
        let backend = Arc::clone(&backend);
        async move {
            let service = service_fn(move |request| answer(Arc::clone(&backend), request));
            let serving = hyper::server::conn::http1::Builder::new();
            drop(
                serving
                    .serve_connection(TokioIo::new(stream), service)
                    .await,
            );
        }
    })
}

async fn answer(
    backend: Arc<(PathBuf, PathBuf)>,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let (head, body) = request.into_parts();
    let body = body
        .collect()
        .await
        .map(http_body_util::Collected::to_bytes)
        .unwrap_or_default();
    let said = tokio::task::spawn_blocking(move || gateway(&backend, &head, &body)).await;
    let said = said.unwrap_or_default();
    let split = said
        .windows(4)
        .position(|four| four == b"\r\n\r\n")
        .unwrap_or(said.len());
    let mut response = Response::builder();
    for line in String::from_utf8_lossy(&said[..split]).lines() {
        if let Some((name, value)) = line.split_once(": ") {
            response = match name {
                "Status" => response.status(&value[..3]),
                name => response.header(name, value),
            };
        }
    }
    let body = Bytes::copy_from_slice(said.get(split + 4..).unwrap_or_default());
    Ok(response.body(Full::new(body)).expect("a valid answer"))
}

/// The common gateway interface: the request in the environment and on standard input, the answer with its headers on standard output.
fn gateway(
    (git, directory): &(PathBuf, PathBuf),
    head: &hyper::http::request::Parts,
    body: &[u8],
) -> Vec<u8> {
    let header = |name: &str| {
        head.headers
            .get(name)
            .and_then(|it| it.to_str().ok())
            .unwrap_or("")
    };
    let child = Command::new(git)
        .arg("http-backend")
        .env("GIT_PROJECT_ROOT", directory)
        .env("GIT_HTTP_EXPORT_ALL", "1")
        .env("GIT_PROTOCOL", header("git-protocol"))
        .env("HTTP_CONTENT_ENCODING", header("content-encoding"))
        .env("REQUEST_METHOD", head.method.as_str())
        .env("PATH_INFO", head.uri.path())
        .env("QUERY_STRING", head.uri.query().unwrap_or(""))
        .env("CONTENT_TYPE", header("content-type"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn();
    let Ok(mut child) = child else {
        return Vec::new();
    };
    if let Some(mut input) = child.stdin.take() {
        drop(input.write_all(body));
    }
    child
        .wait_with_output()
        .map(|done| done.stdout)
        .unwrap_or_default()
}
