//! Documents for tests.

use crate::policy::Policy;
use crate::problem::Problem;

/// The policy of a document that is right.
pub(crate) fn policy(text: &str) -> Policy {
    Policy::parse("policy.yaml", text).unwrap_or_else(|invalid| panic!("{invalid}"))
}

/// The problems of one that is not.
pub(crate) fn problems(text: &str) -> Vec<Problem> {
    Policy::parse("policy.yaml", text).expect_err(text).problems
}

/// Its one problem, as people read it.
pub(crate) fn told(text: &str) -> String {
    let problems = problems(text);
    assert_eq!(problems.len(), 1, "{problems:?}");
    problems[0].to_string()
}

/// A document with one endpoint.
pub(crate) fn endpoint(endpoint: &str) -> String {
    format!("version: 1\nnetwork_policies:\n  r:\n    endpoints:\n      - {endpoint}\n")
}
