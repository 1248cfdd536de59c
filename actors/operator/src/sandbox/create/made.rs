//! What a creation has made, and how it is unmade: this very sandbox, and never another that has its name by now.

use std::time::Duration;

use holdfast_wire::v1;
use tokio::time::timeout;
use tonic::Code;

use super::{hinting, left};
use crate::client::{Client, refused};
use crate::failure::{Failure, Kind};

/// A sandbox that was acknowledged.
#[derive(Clone)]
pub(super) struct Made {
    pub(super) client: Client,
    pub(super) name: String,
    pub(super) id: String,
}

impl Made {
    /// The same, asked about over this connection: the gateway may be another one by now.
    pub(super) fn with(&self, client: Client) -> Self {
        Self {
            client,
            ..self.clone()
        }
    }

    /// Deletes what was half made when a signal came.
    pub(super) async fn undone(&self, signal: i32) -> Failure {
        match self.delete().await {
            Ok(()) => Failure::interrupted(signal),
            Err(why) => left(&self.name, signal, &why),
        }
    }

    /// Deletes what can never be of use, and answers why it cannot, with what its keeper has logged about it.
    pub(super) async fn removed(&self, failure: Failure) -> Failure {
        let logged = if failure.kind() == Kind::NotReached {
            timeout(READING, self.logged()).await.unwrap_or_default()
        } else {
            // That its program was not started says everything.
            Vec::new()
        };
        let said = failure.message().to_owned();
        let logged = logged
            .into_iter()
            .filter(|line| !said.contains(line.as_str()));
        let failure = failure.lines(logged);
        let name = &self.name;
        match self.delete().await {
            Ok(()) => hinting(failure, &format!("{name} was not made: its name is free")),
            Err(why) => {
                let remedy = format!("`holdfast delete {name} --force` removes it");
                hinting(failure, &format!("{name} is still there: {why}; {remedy}"))
            }
        }
    }

    /// Bounded: whoever waits for a deletion here wants to leave.
    async fn delete(&self) -> Result<(), String> {
        let request = v1::DeleteRequest {
            sandbox: self.name.clone(),
            force: true,
            id: self.id.clone(),
        };
        let mut client = self.client.clone();
        match timeout(UNDOING, client.delete(request)).await {
            Ok(Ok(_deleted)) => Ok(()),
            Ok(Err(status)) if status.code() == Code::NotFound => Ok(()),
            Ok(Err(status)) => Err(refused(&status).message().to_owned()),
            Err(_late) => Err("its deletion takes longer than ten seconds".to_owned()),
        }
    }

    /// The last complaints of its keeper.
    async fn logged(&self) -> Vec<String> {
        let request = v1::LogsRequest {
            sandbox: self.name.clone(),
            sources: vec!["keeper".to_owned()],
            level: "warn".to_owned(),
            ..v1::LogsRequest::default()
        };
        let mut lines = Vec::new();
        let mut client = self.client.clone();
        let Ok(opened) = client.logs(request).await else {
            return lines;
        };
        let mut opened = opened.into_inner();
        while let Ok(Some(line)) = opened.message().await {
            if lines.len() == MOST_LINES {
                lines.remove(0);
            }
            lines.push(String::from_utf8_lossy(&line.text).trim_end().to_owned());
        }
        lines
    }
}

/// How long the deletion of something half made may take.
const UNDOING: Duration = Duration::from_secs(10);

/// How long its log may take to be read.
const READING: Duration = Duration::from_secs(2);

/// How much of its log is told.
const MOST_LINES: usize = 5;
