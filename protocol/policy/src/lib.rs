//! What a sandbox may do: the policy document, its validation and its judge.
