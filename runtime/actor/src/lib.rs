//! Obeys supervision on ractor: bounded mailboxes, generations, ordered shutdown.
