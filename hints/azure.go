package hints

import (
	"net/http"
	"time"

	"github.com/retryafter-go/retryafter"
)

// Azure knows the fields in milliseconds that Azure's services send. Cosmos DB
// documents x-ms-retry-after-ms on a 429 (Common Azure Cosmos DB REST response
// headers, https://learn.microsoft.com/en-us/rest/api/cosmos-db); Azure's
// libraries read that and retry-after-ms of every service
// (sdk/azcore/internal/shared/shared.go of github.com/Azure/azure-sdk-for-go, at
// commit 0095beb), which Azure OpenAI is reported to send.
//
// Resource Manager sends Retry-After, which needs no reader. Its
// x-ms-ratelimit-remaining fields tell what is left, and not until when.
type Azure struct{}

var azure = Latest(Reset{Field: "X-Ms-Retry-After-Ms", Meaning: Milliseconds}.Hint, retryAfterMs.Hint)

// Hint is a [Reader] of x-ms-retry-after-ms and retry-after-ms, the later of the
// two.
func (Azure) Hint(h http.Header, received time.Time) (retryafter.Hint, error) {
	return azure(h, received)
}
