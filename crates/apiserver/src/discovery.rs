//! Which groups, versions and resources are served.
