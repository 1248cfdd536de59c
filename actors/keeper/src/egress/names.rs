//! What the egress needs to know of names: what a synthetic address stands for, and where a name really is.

use crate::resolver::{self, Family, NameError, Upstream};
use futures_util::future::BoxFuture;
use holdfast_policy::Name;
use std::net::IpAddr;
use std::sync::Arc;

/// Names, as the resolver of the same sandbox knows them.
pub trait Names: Send + Sync + 'static {
    /// The name that a synthetic address was given to.
    fn name_of(&self, address: IpAddr) -> Option<Name>;

    /// The real addresses of a name in the family of `like`, best first. What is known already is answered without waiting.
    fn resolve<'a>(
        &'a self,
        name: &'a Name,
        like: IpAddr,
    ) -> BoxFuture<'a, Result<Vec<IpAddr>, NameError>>;
}

/// The resolver's table and its lookups.
pub struct Directory {
    /// Which name each synthetic address stands for.
    pub names: Arc<resolver::Names>,
    /// Where names really are.
    pub upstream: Arc<Upstream>,
}

impl Names for Directory {
    fn name_of(&self, address: IpAddr) -> Option<Name> {
        self.names.name_of(address)
    }

    fn resolve<'a>(
        &'a self,
        name: &'a Name,
        like: IpAddr,
    ) -> BoxFuture<'a, Result<Vec<IpAddr>, NameError>> {
        Box::pin(async move {
            let addresses = self.upstream.resolve(name, Family::of(like)).await?;
            Ok(addresses.ips.to_vec())
        })
    }
}
