//! Whether a request makes sense, before anything is touched.

use holdfast_policy::Policy;
use holdfast_wire::{name, v1};

use crate::refused::Refused;

/// Whether a sandbox can be made of this at all.
pub(super) fn create(request: &v1::CreateRequest) -> Result<(), Refused> {
    let wrong = |field, why| {
        Err(Refused::InvalidArgument {
            what: "create a sandbox",
            field,
            why,
        })
    };
    name::check(&request.name).map_err(|why| Refused::InvalidName {
        name: request.name.clone(),
        why,
    })?;
    if !request.policy.is_empty() {
        policy(&request.policy_name, &request.policy)?;
    }
    if !matches!(&*request.on_link_loss, "" | "continue" | "freeze") {
        return wrong("on_link_loss", "is neither continue nor freeze");
    }
    if v1::RestartPolicy::try_from(request.restart).is_err() {
        return wrong("restart", "is none that this gateway knows");
    }
    if request.labels.len() > MOST_LABELS {
        return wrong("labels", "are more than 64");
    }
    let absolute = |path: &[u8]| path.is_empty() || path.starts_with(b"/");
    if !absolute(&request.rootfs) || !absolute(&request.workdir) || !absolute(&request.directory) {
        return wrong("directory, workdir or rootfs", "is not absolute");
    }
    Ok(())
}

/// Reads a policy, or says everything that is wrong with it.
pub(super) fn policy(name: &str, text: &str) -> Result<Policy, Refused> {
    if text.len() > MOST_POLICY {
        return Err(Refused::InvalidArgument {
            what: "read the policy",
            field: "it",
            why: "is larger than 1 MiB",
        });
    }
    let name = if name.is_empty() { "policy" } else { name };
    Policy::parse(name, text).map_err(Refused::PolicyInvalid)
}

const MOST_POLICY: usize = 1 << 20;
const MOST_LABELS: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    fn request(change: impl Fn(&mut v1::CreateRequest)) -> Result<(), String> {
        let mut request = v1::CreateRequest {
            name: "qa".to_owned(),
            workdir: b"/srv/agent".to_vec(),
            ..v1::CreateRequest::default()
        };
        change(&mut request);
        create(&request).map_err(|refused| refused.to_string())
    }

    #[test]
    fn what_makes_no_sense_is_named() {
        assert_eq!(request(|_| {}), Ok(()));
        let refused = |change: fn(&mut v1::CreateRequest)| request(change).expect_err("refused");

        assert!(refused(|it| it.name = "A".to_owned()).contains("use a-z"));
        assert!(refused(|it| it.policy = "version: 9\n".to_owned()).contains("version"));
        assert!(refused(|it| it.restart = 9).contains("restart"));
        assert!(refused(|it| it.on_link_loss = "x".to_owned()).contains("freeze"));
        assert!(refused(|it| it.directory = b"a/b".to_vec()).contains("absolute"));
    }
}
