//! The keys of rules, those that are read and those that are refused by name.

use crate::document::Keys;

/// What the keys of requests would need.
pub(crate) const INSPECTION: &str = "it needs inspection, which this version does not have; without `protocol` the endpoint is L4: any bytes";
const CREDENTIALS: &str = "it needs inspection and credentials, which this version does not have";

pub(crate) const RULE: Keys = Keys {
    what: "a rule",
    known: &["name", "endpoints", "binaries"],
    refused: &[],
};
pub(crate) const BINARY: Keys = Keys {
    what: "a binary",
    known: &["path"],
    refused: &[("harness", "it has no effect in OpenShell either")],
};
pub(crate) const ENDPOINT: Keys = Keys {
    what: "an endpoint",
    known: &[
        "host",
        "port",
        "ports",
        "allowed_ips",
        "enforcement",
        "protocol",
        "tls",
    ],
    refused: &[
        ("access", INSPECTION),
        ("rules", INSPECTION),
        ("deny_rules", INSPECTION),
        ("path", INSPECTION),
        ("allow_encoded_slash", INSPECTION),
        ("persisted_queries", INSPECTION),
        ("graphql_persisted_queries", INSPECTION),
        ("graphql_max_body_bytes", INSPECTION),
        ("mcp", INSPECTION),
        ("json_rpc", INSPECTION),
        ("credential_binding", CREDENTIALS),
        ("request_body_credential_rewrite", CREDENTIALS),
        ("websocket_credential_rewrite", CREDENTIALS),
        ("allow_uninspected_credentials", CREDENTIALS),
        ("credential_signing", CREDENTIALS),
        ("signing_service", CREDENTIALS),
        ("signing_region", CREDENTIALS),
    ],
};
