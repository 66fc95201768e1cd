//! An embedded cluster, or a real control plane, in anyone's tests.
