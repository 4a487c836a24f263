# Cross-compiled on the builder's own platform: TARGETOS and TARGETARCH come from buildx, and are empty with a plain build.
FROM --platform=${BUILDPLATFORM:-linux/amd64} golang:1.26.11 AS builder
ARG TARGETOS
ARG TARGETARCH
ARG VERSION=devel
ARG REVISION=unknown

WORKDIR /workspace
COPY go.mod go.sum ./
RUN go mod download
COPY api/ api/
COPY cmd/ cmd/
COPY controllers/ controllers/
COPY internal/ internal/
RUN CGO_ENABLED=0 GOOS=${TARGETOS:-linux} GOARCH=${TARGETARCH} go build -trimpath -buildvcs=false \
    -ldflags "-s -w -X github.com/jobmesh/jobmesh/internal/version.Version=${VERSION} -X github.com/jobmesh/jobmesh/internal/version.Revision=${REVISION}" \
    -o /manager ./cmd/manager

FROM gcr.io/distroless/static:nonroot
COPY --from=builder /manager /manager
USER 65532:65532
ENTRYPOINT ["/manager"]
