//! Stories of the API server, told through its requests.

#[cfg(test)]
mod admission;
#[cfg(test)]
mod api;
#[cfg(test)]
mod apply;
#[cfg(test)]
mod certificates;
#[cfg(test)]
mod conversion;
#[cfg(test)]
mod custom;
#[cfg(test)]
mod mutating;
#[cfg(test)]
mod nodes;
#[cfg(test)]
mod nonsense;
#[cfg(test)]
mod objects;
#[cfg(test)]
mod patching;
#[cfg(test)]
mod recorded;
#[cfg(test)]
mod rules;
#[cfg(test)]
mod services;
#[cfg(test)]
mod subresources;
#[cfg(test)]
mod upstream;
#[cfg(test)]
mod watching;
#[cfg(test)]
mod webhooks;
