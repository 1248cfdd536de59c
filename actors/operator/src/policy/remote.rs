//! `holdfast policy get`, `set` and `diff`: the policies of sandboxes that last.

use std::io::{self, IsTerminal as _, Write as _};
use std::path::Path;
use std::process::ExitCode;

use holdfast_policy::Policy;
use holdfast_wire::v1;
use serde_json::json;
use similar::TextDiff;

use super::source;
use crate::cli::sandboxes::{DiffPolicy, GetPolicy, SetPolicy};
use crate::client::{self, Client, refused, unanswered};
use crate::config::Config;
use crate::failure::{Failure, Kind};
use crate::output::{self, Format};

/// Prints the policy as it was written.
pub(crate) fn get(arguments: &GetPolicy, config: &Config) -> Result<ExitCode, Failure> {
    client::with(config, async |mut client| {
        let revision = arguments.revision.unwrap_or(0);
        let mut policy = asked(&mut client, &arguments.name, revision).await?;
        if policy.yaml.is_empty() {
            policy.yaml = format!("# the default policy\n{}", Policy::standard().expanded());
        }
        match arguments.output.output {
            Format::Text if io::stdout().is_terminal() => {
                output::text(&output::harmless_lines(&policy.yaml))?;
            }
            Format::Text => output::text(&policy.yaml)?,
            Format::Json => output::document(&json!({
                "name": arguments.name,
                "revision": policy.revision,
                "policy": policy.yaml,
            }))?,
        }
        Ok(ExitCode::SUCCESS)
    })
}

/// Puts a policy in force. It is checked here first: every problem is told with its place in the file.
pub(crate) fn set(
    arguments: &SetPolicy,
    config: &Config,
    quiet: bool,
) -> Result<ExitCode, Failure> {
    let yaml = source::text(&arguments.file)?;
    source::parse(&arguments.file, &yaml)?;
    client::with(config, async |mut client| {
        let request = v1::SetPolicyRequest {
            sandbox: arguments.name.clone(),
            yaml,
            policy_name: arguments.file.display().to_string(),
            wait: arguments.wait,
        };
        let answer = client.set_policy(request).await;
        let state = answer
            .map_err(|status| {
                let name = &arguments.name;
                let look = format!(
                    "`holdfast status {name}` says which revision is in force (policy.desired, policy.enforced)"
                );
                unanswered(&status, look)
            })?
            .into_inner();
        match arguments.output.output {
            Format::Text => output::text(&format!("revision {}\n", state.desired))?,
            Format::Json => {
                let mut document = crate::sandbox::policy_state(&state);
                document["warning"] = json!(state.warning);
                output::document(&document)?;
            }
        }
        for warning in [&state.warning, &state.error] {
            if !warning.is_empty() && !quiet {
                // When stderr is gone, the status says the same.
                let _unheard = writeln!(
                    io::stderr(),
                    "holdfast: warning: {}",
                    output::harmless(warning)
                );
            }
        }
        Ok(ExitCode::SUCCESS)
    })
}

/// Compares what is in force with a file: 0 when both mean the same.
pub(crate) fn diff(arguments: &DiffPolicy, config: &Config) -> Result<ExitCode, Failure> {
    let theirs = source::load(&arguments.file)?;
    client::with(config, async |mut client| {
        let ours = in_force(&mut client, &arguments.name).await?;
        let name = &arguments.name;
        let diff = compared(&ours, &theirs, name, &arguments.file);
        match arguments.output.output {
            Format::Text => output::text(&output::harmless_lines(&diff))?,
            Format::Json => output::document(&json!({
                "same": diff.is_empty(),
                "from": ours.hash(),
                "to": theirs.hash(),
                "diff": diff,
            }))?,
        }
        Ok(ExitCode::from(u8::from(!diff.is_empty())))
    })
}

/// The policy in force in a sandbox, for a question about it.
pub(super) fn of_sandbox(name: &str, config: &Config) -> Result<Policy, Failure> {
    client::on_runtime(async {
        let mut client = client::reach(config).await?;
        in_force(&mut client, name).await
    })
}

async fn in_force(client: &mut Client, name: &str) -> Result<Policy, Failure> {
    let policy = asked(client, name, 0).await?;
    if policy.yaml.is_empty() {
        return Ok(Policy::standard());
    }
    let called = format!("{name}@{}", policy.revision);
    Policy::parse(&called, &policy.yaml).map_err(|invalid| {
        Failure::new(
            Kind::Internal,
            format!("read the policy in force in {name}"),
        )
        .lines(invalid.problems.iter().map(ToString::to_string))
    })
}

async fn asked(
    client: &mut Client,
    name: &str,
    revision: u64,
) -> Result<v1::PolicyRevision, Failure> {
    let request = v1::GetPolicyRequest {
        sandbox: name.to_owned(),
        revision,
    };
    let answer = client.get_policy(request).await;
    Ok(answer.map_err(|status| refused(&status))?.into_inner())
}

/// What differs once every default is written out; empty when nothing does.
fn compared(ours: &Policy, theirs: &Policy, name: &str, file: &Path) -> String {
    if ours.hash() == theirs.hash() {
        return String::new();
    }
    let (ours, theirs) = (ours.expanded(), theirs.expanded());
    let diff = TextDiff::from_lines(&ours, &theirs);
    let file = file.display().to_string();
    diff.unified_diff()
        .context_radius(3)
        .header(name, &file)
        .to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_that_mean_the_same_do_not_differ_and_others_do_by_line() {
        let policy = |text| Policy::parse("p", text).expect("is a policy");
        let plain = policy("version: 1\n");
        let spelled = policy("# the same\nversion: 1\non_link_loss: continue\n");
        let other = policy("version: 1\non_link_loss: freeze\n");

        assert_eq!(compared(&plain, &spelled, "qa", Path::new("f")), "");
        let diff = compared(&plain, &other, "qa", Path::new("f"));
        assert!(diff.starts_with("--- qa\n+++ f\n"), "{diff}");
        assert!(diff.contains("\n+on_link_loss: freeze\n"), "{diff}");
    }
}
