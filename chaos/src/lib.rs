//! Storms: seeded simulations of supervision.
