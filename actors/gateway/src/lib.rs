//! The control plane of one host: which sandboxes there are, how they stand, and who may ask.
