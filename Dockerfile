# syntax=docker/dockerfile:1
# The operator as an image: one static binary that runs as nobody in particular.
#
# `cargo xtask test` runs the cargo lines of the first stage too (with PROFILE=dev) and checks what comes of them, so
# that this file cannot rot where there is no container engine.
FROM rust:1.95-slim-bookworm AS build
ARG PROFILE=release
# Time zones for `spec.sleep`; a scratch image has none.
RUN apt-get update && apt-get install --yes --no-install-recommends tzdata
WORKDIR /src
COPY . .
RUN cargo rustc --locked --package stead-cli --bin stead --profile ${PROFILE} -- -C target-feature=+crt-static
RUN install -D target/${PROFILE}/stead /out/stead

FROM scratch
COPY --from=build /usr/share/zoneinfo /usr/share/zoneinfo
COPY --from=build /out/stead /stead
USER 65532:65532
ENTRYPOINT ["/stead"]
CMD ["operator", "--leader-elect"]
