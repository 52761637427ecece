FROM golang:1.26-bookworm AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
RUN CGO_ENABLED=0 go build -trimpath -ldflags '-s -w' -o /out/ ./cmd/execution-plane

FROM debian:bookworm-slim
# A mounted volume takes the owner of the folder it covers.
RUN apt-get update \
 && apt-get install -y --no-install-recommends ca-certificates \
 && rm -rf /var/lib/apt/lists/* \
 && useradd --system --uid 10001 --create-home --home-dir /var/lib/execution-plane execution-plane
COPY --from=build /out/execution-plane /usr/local/bin/execution-plane
USER execution-plane
WORKDIR /var/lib/execution-plane
ENTRYPOINT ["execution-plane"]
