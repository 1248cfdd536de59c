//! Black-box tests on the real binary, and the servers they talk to.
